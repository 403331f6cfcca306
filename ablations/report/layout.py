"""Tables and lists in Markdown and for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MARKS = re.compile(r"[\\`*<>\[\]]|(?<!\w)_|_(?!\w)")


def columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)
) -> str:
    """Aligned columns under a rule, those in ``left`` to the left."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def join(line: Sequence[str]) -> str:
        cells = (
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        return " ".join(cells).rstrip()

    rule = "\u2500" * (sum(widths) + len(widths) - 1)
    return "\n".join([join(header), rule, *map(join, rows)])


def grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, padded so that it reads as plain text too; the first column is left."""
    cells = [[escape(cell).replace("|", "\\|") for cell in line] for line in (header, *rows)]
    widths = [max(3, *(len(line[column]) for line in cells)) for column in range(len(header))]

    def join(line: Sequence[str]) -> str:
        first = line[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        return f"| {' | '.join([first, *rest])} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([join(cells[0]), join(rule), *map(join, cells[1:])])


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escape(line)}" for line in lines)


def escape(text: str) -> str:
    """Keep Markdown from reading marks in what a run or a user wrote."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))
