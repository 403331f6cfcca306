"""The text to score, checked and encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from transformer.corpus import Corpus, TextFile
from transformer.data.columns import check_columns
from transformer.data.fetch.texts import fetch
from transformer.data.prepared import VOCABULARY_FILE, TextReport, text_name
from transformer.data.store import MAX_PIECES, write_store
from transformer.data.text import read_aligned, read_text
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.parsing.trees import check_lines


def check_scored(corpus: Corpus, paths: Mapping[TextFile, Path]) -> None:
    """Check that the text to score is aligned and has no empty reference, and that trees are over
    the words of their lines.
    """
    for text in filter(None, (corpus.valid, corpus.test)):
        if text.source.is_column:
            check_columns(fetch(replace(text.source, member=None)))
        lines = read_aligned(paths[text.source], paths[text.target])
        _check_references(text.target, lines[1])
        for reference in text.references:
            read_aligned(paths[text.source], paths[reference])  # which may lack some sentences
        if corpus.task == "parsing":
            check_lines(*lines, text.target.name)


def _check_references(file: TextFile, lines: Sequence[str]) -> None:
    """Check that there is a reference for each sentence."""
    if "" in lines:
        number, count = lines.index("") + file.first_line, lines.count("")
        more = f", and so are {count - 1} others" if count > 1 else ""
        raise InputError(
            f"{file.name}, line {number} is empty{more}: a score needs a reference for each "
            "sentence, so remove such pairs from source and target"
        )


def write_scored(corpus: Corpus, paths: Mapping[TextFile, Path], part: Path) -> list[TextReport]:
    """Write the splits that are scored. Every line is kept: scores are for the whole set."""
    vocabulary = Vocabulary(part / VOCABULARY_FILE)
    report: list[TextReport] = []
    for split in ("valid", "test"):
        for text in corpus.splits.get(split, ()):
            directory = part / split
            directory.mkdir(exist_ok=True)
            sides = read_aligned(paths[text.source], paths[text.target])
            _write_lines(directory / "source.txt", sides[0])
            _write_lines(directory / "reference.txt", sides[1])
            for number, file in enumerate(text.references, 2):
                _write_lines(directory / f"reference-{number}.txt", read_text(paths[file]))
            pairs = list(zip(*map(vocabulary.encode, sides), strict=True))
            if all(max(map(len, pair)) > MAX_PIECES for pair in pairs):
                raise InputError(
                    f"{paths[text.source]} and {paths[text.target]}: each line has more than "
                    f"{MAX_PIECES:,} word-pieces; split them into sentences"
                )
            write_store(directory, [pairs], len(vocabulary))
            count = len(pairs)
            report.append(TextReport(split=split, text=text_name(text), lines=count, kept=count))
    return report


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
