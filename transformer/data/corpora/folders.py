"""Corpora of the user's own files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.data.columns import find_columns
from transformer.errors import InputError
from transformer.files import expand_user

_TABLE = "tsv"
_PACKINGS = ("", ".gz", ".xz", ".bz2")
_MOST_FILES = 100  # of one text: its source and its references
# As in en, eng_Latn and en-GB.
_ENGLISH = re.compile(r"eng?([-_]|$)", re.IGNORECASE)
_TRAINING_TEXT = re.compile(r"(?P<stem>train(-.+?)?)\.(?P<language>[^.]+)(\.(gz|xz|bz2))?")


def files_corpus(
    name: str,
    *,
    languages: tuple[str, str],
    train: Sequence[tuple[str | Path, str | Path]],
    valid: Sequence[str | Path],
    test: Sequence[str | Path] | None = None,
) -> Corpus:
    """A corpus of line-aligned (source, target) files, plain or .gz, .xz, .bz2; what is scored may
    have further references after the target.

    Relative paths start at the working directory.
    """

    def pair(files: Any, most: int = 2) -> ParallelText:
        if not isinstance(files, tuple | list) or not 2 <= len(cast(Sequence[Any], files)) <= most:
            raise InputError(f"{files!r} is not a text of a corpus: give (source, target)")
        sides = [TextFile(location=str(file)) for file in cast(Sequence[Any], files)]
        return ParallelText(source=sides[0], target=sides[1], references=tuple(sides[2:]))

    corpus = Corpus(
        name=name,
        source_language=languages[0],
        target_language=languages[1],
        licence="the user's own",
        train=tuple(pair(files) for files in train),
        valid=pair(valid, _MOST_FILES),
        test=None if test is None else pair(test, _MOST_FILES),
    )
    return corpus.placed(Path())


def folder_corpus(folder: str | Path, languages: tuple[str, str] | None = None) -> Corpus:
    """The corpus in a folder of files ``train.en``, ``train.de``, ``valid.en`` and so on.

    Further training texts, ``train-NAME.en`` and ``train-NAME.de``, are ordered by name. Any file
    may end in .gz, .xz or .bz2; ``test`` may be missing. Without ``languages`` the folder must hold
    training text in exactly two, and English is the source if it is one of them. Source and target
    may also be two columns of ``train.tsv``, ``valid.tsv`` and so on, see :func:`find_columns`.

    Further references of ``valid`` and ``test`` are ``valid.de.1``, ``valid.de.2`` and so on, or
    ``valid.de1`` as Moses' ``multi-bleu.perl`` names them; without a ``valid.de`` the one with the
    lowest number is the first.

    Raises:
        InputError: if a file is missing or exists both plain and compressed, or the languages are
            ambiguous.
    """
    folder = expand_user(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    matches = (_TRAINING_TEXT.fullmatch(path.name) for path in folder.iterdir())
    texts = [(match["stem"], match["language"]) for match in matches if match]
    if any(language == _TABLE for _, language in texts):
        return _corpus_of_tables(folder, texts, languages)
    source, target = languages or _two_languages(folder, {language for _, language in texts})

    def pair(stem: str) -> tuple[Path, Path]:
        return _find(folder, f"{stem}.{source}"), _find(folder, f"{stem}.{target}")

    def scored(split: str) -> list[Path]:
        name = f"{split}.{target}"
        references = _numbered(folder, name) or [_find(folder, name)]
        return [_find(folder, f"{split}.{source}"), *references]

    stems = sorted({stem for stem, language in texts if language in (source, target)})
    has_test = any(_numbered(folder, f"test.{side}") for side in (source, target))
    return files_corpus(
        folder.resolve().name,
        languages=(source, target),
        train=[pair(stem) for stem in stems or ["train"]],
        valid=scored("valid"),
        test=scored("test") if has_test else None,
    )


def _corpus_of_tables(
    folder: Path, texts: Sequence[tuple[str, str]], languages: tuple[str, str] | None
) -> Corpus:
    others = sorted(f"{stem}.{language}" for stem, language in texts if language != _TABLE)
    if others:
        raise InputError(f"{folder} holds tables (.tsv) and {others[0]}: remove those or these")
    stems = sorted({stem for stem, _ in texts})
    first = _find(folder, f"{stems[0]}.{_TABLE}")
    named, _ = find_columns(first, languages)
    if languages is None:
        languages = _two_languages(folder, {*named})
    pair = languages

    def table(stem: str) -> ParallelText:
        path = _find(folder, f"{stem}.{_TABLE}")
        _, columns = find_columns(path, pair)
        source, target = (TextFile(location=str(path), member=column) for column in columns)
        return ParallelText(source=source, target=target)

    corpus = Corpus(
        name=folder.resolve().name,
        source_language=pair[0],
        target_language=pair[1],
        licence="the user's own",
        train=tuple(map(table, stems)),
        valid=table("valid"),
        test=table("test") if _numbered(folder, f"test.{_TABLE}") else None,
    )
    if len({file.first_line for file in corpus.files}) > 1:
        raise InputError(
            f"{folder}: some tables name their columns in the first line, others do not: name them "
            "in all or in none"
        )
    return corpus.placed(Path())


def _two_languages(folder: Path, found: set[str]) -> tuple[str, str]:
    languages = sorted(found, key=lambda language: (not _ENGLISH.match(language), language))
    if len(languages) != 2:
        raise InputError(
            f"{folder} must hold train.SOURCE and train.TARGET for two languages (found: "
            f"{', '.join(languages) or 'none'}); name them as in files:FOLDER:de-en"
        )
    return languages[0], languages[1]


def _numbered(folder: Path, name: str) -> list[Path]:
    """The files called ``name``, ``name.1`` or ``name1`` and so on, in order."""
    pattern = re.compile(re.escape(name) + r"(\.?(?P<number>\d{1,3}))?(\.(gz|xz|bz2))?")
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = pattern.fullmatch(path.name)
        if match is None or not path.is_file():
            continue
        number = int(match["number"] or -1)  # one without a number comes first
        if number in found:
            raise _several(folder, [found[number], path])
        found[number] = path
    return [path for _, path in sorted(found.items())]


def _find(folder: Path, name: str) -> Path:
    found = [path for packing in _PACKINGS if (path := folder / (name + packing)).is_file()]
    if not found:
        raise InputError(f"{folder} holds no {name} (plain, .gz, .xz or .bz2)")
    if len(found) > 1:
        raise _several(folder, found)
    return found[0]


def _several(folder: Path, found: Sequence[Path]) -> InputError:
    names = " and ".join(path.name for path in found)
    return InputError(f"{folder} holds {names}: remove all but the one to be used")
