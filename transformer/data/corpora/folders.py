"""Corpora of the user's own files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.errors import InputError
from transformer.files import expand_user

_PACKINGS = ("", ".gz", ".xz", ".bz2")
# As in en, eng_Latn and en-GB.
_ENGLISH = re.compile(r"eng?([-_]|$)", re.IGNORECASE)
_TRAINING_TEXT = re.compile(r"(?P<stem>train(-.+?)?)\.(?P<language>[^.]+)(\.(gz|xz|bz2))?")


def files_corpus(
    name: str,
    *,
    languages: tuple[str, str],
    train: Sequence[tuple[str | Path, str | Path]],
    valid: tuple[str | Path, str | Path],
    test: tuple[str | Path, str | Path] | None = None,
) -> Corpus:
    """A corpus of line-aligned (source, target) files, plain or .gz, .xz, .bz2.

    Relative paths start at the working directory.
    """

    def pair(files: Any) -> ParallelText:
        if not isinstance(files, tuple | list) or len(files) != 2:
            raise InputError(f"{files!r} is no text of a corpus: give (source, target)")
        source, target = (TextFile(location=str(file)) for file in cast(Sequence[Any], files))
        return ParallelText(source=source, target=target)

    corpus = Corpus(
        name=name,
        source_language=languages[0],
        target_language=languages[1],
        licence="the user's own",
        train=tuple(pair(files) for files in train),
        valid=pair(valid),
        test=None if test is None else pair(test),
    )
    return corpus.placed(Path())


def folder_corpus(folder: str | Path, languages: tuple[str, str] | None = None) -> Corpus:
    """The corpus in a folder of files ``train.en``, ``train.de``, ``valid.en`` and so on.

    Further training texts, ``train-NAME.en`` and ``train-NAME.de``, are ordered by name. Any file
    may end in .gz, .xz or .bz2; ``test`` may be missing. Without ``languages`` the folder must hold
    training text in exactly two, and English is the source if it is one of them.

    Raises:
        InputError: if a file is missing or exists both plain and compressed, or the languages are
            ambiguous.
    """
    folder = expand_user(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    matches = (_TRAINING_TEXT.fullmatch(path.name) for path in folder.iterdir())
    texts = [(match["stem"], match["language"]) for match in matches if match]
    source, target = languages or _two_languages(folder, {language for _, language in texts})

    def pair(stem: str) -> tuple[Path, Path]:
        return _find(folder, f"{stem}.{source}"), _find(folder, f"{stem}.{target}")

    stems = sorted({stem for stem, language in texts if language in (source, target)})
    tests = [f"test.{side}{packing}" for side in (source, target) for packing in _PACKINGS]
    return files_corpus(
        folder.resolve().name,
        languages=(source, target),
        train=[pair(stem) for stem in stems or ["train"]],
        valid=pair("valid"),
        test=pair("test") if any((folder / name).is_file() for name in tests) else None,
    )


def _two_languages(folder: Path, found: set[str]) -> tuple[str, str]:
    languages = sorted(found, key=lambda language: (not _ENGLISH.match(language), language))
    if len(languages) != 2:
        raise InputError(
            f"{folder} must hold train.SOURCE and train.TARGET for two languages (found: "
            f"{', '.join(languages) or 'none'}); name them as in files:FOLDER:de-en"
        )
    return languages[0], languages[1]


def _find(folder: Path, name: str) -> Path:
    found = [path for packing in _PACKINGS if (path := folder / (name + packing)).is_file()]
    if not found:
        raise InputError(f"{folder} holds no {name} (plain, .gz, .xz or .bz2)")
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise InputError(f"{folder} holds {names}: remove all but the one to be used")
    return found[0]
