"""Translate a stream of lines."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from experiments.evaluate.exported import load_translator
from experiments.evaluate.translator import Translator
from experiments.records.experiment import DecodingOptions
from transformer.data.text import MAX_LINE, arriving_lines, decode_line

# The most lines of standard input that are translated at a time.
_LINES_AT_ONCE = 512


def translate_stream(
    directory: Path, stream: IO[bytes], options: DecodingOptions = DecodingOptions()
) -> Iterator[str]:
    """Translate lines in order, those that have arrived together at a time.

    A parser turns a line, with spaces around words and punctuation, into a tree.
    """
    trained, first_line = load_translator(directory, options), 1
    for arrived in arriving_lines(stream):
        for start in range(0, len(arrived), _LINES_AT_ONCE):
            numbered = enumerate(arrived[start : start + _LINES_AT_ONCE], first_line)
            read = [_read_line(*line) for line in numbered]
            yield from _translate(trained, read, first_line)
            first_line += len(read)


def _translate(trained: Translator, read: Sequence[str | None], first_line: int) -> Iterator[str]:
    lines = [trained.as_source(line or "") for line in read]
    decoded = trained.decode(lines, first_line=first_line)
    for as_read, line, found in zip(read, lines, decoded, strict=True):
        yield "" if as_read is None else trained.as_shown(found, line)


def _read_line(number: int, line: bytes) -> str | None:
    """A line as text; None, with a warning, if it is too long."""
    if len(line) > MAX_LINE:
        warnings.warn(f"line {number:,} has more than {MAX_LINE:,} bytes: left empty", stacklevel=2)
        return None
    return decode_line(line, "standard input", number)
