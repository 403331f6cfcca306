"""Lay out a report as Markdown and for a terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ablations.files import FIGURES
from ablations.report.page import Facts, Figures, Page, Part, Table, Text
from experiments.run.progress import printable

# Marks anywhere, underscores but those inside a word, entities, and what begins a block.
_MARKS = re.compile(
    r"[\\`*<>\[\]$]|~(?=[~\w])|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)"
    r"|^#(?=#{0,5}(\s|$))|^[-+](?=\s|$|-+$)"
)
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")


def to_markdown(page: Page) -> str:
    """The report in GitHub's Markdown, without what its rows open to."""
    blocks = [f"# {_escape(page.title)}"]
    for section in page.sections:
        found = [block for part in section.parts for block in _markdown(part)]
        heading = [f"## {section.heading}"] if section.heading and found else []
        blocks += heading + found
    return "\n\n".join(blocks) + "\n"


def _markdown(part: Part) -> list[str]:
    match part:
        case Text():
            lines = [_escape(line) for line in part.content]
            return ["\n".join(f"- {line}" for line in lines)] if part.is_list else lines
        case Facts():
            return ["\n".join(f"- {_escape(f'{name}: {value}')}" for name, value in part.content)]
        case Table():
            shown = part.select("terminal")
            lines = [[column.title for column in shown.columns], *shown.rows]
            cells = _aligned([[_escape(x).replace("|", "\\|") for x in line] for line in lines], 3)
            rule = ["-" * len(cells[0][0]), *("-" * (len(x) - 1) + ":" for x in cells[0][1:])]
            return ["\n".join(f"| {' | '.join(line)} |" for line in (cells[0], rule, *cells[1:]))]
        case Figures():
            return [
                f"![{_escape(figure.caption)}]({FIGURES}/{figure.name}.svg)"
                for figure in part.content
            ]
        case _:
            return []


def to_text(page: Page, width: int) -> str:
    """The parts for a terminal, in which columns that do not fit are left out."""
    blocks: list[str] = []
    for section in page.sections:
        for part in section.parts:
            if isinstance(part, Table) and part.terminal:
                tables = [_columns(part.select("page", optional=rank)) for rank in (2, 1, 0)]
                fitting = (x for x in tables if max(map(len, x.splitlines())) <= width)
                blocks.append(next(fitting, tables[-1]))
            elif isinstance(part, Text) and part.terminal:
                indent = "  " * part.is_list
                lines = [f"{section.heading}:"] * part.is_list + [indent + x for x in part.content]
                blocks.append(("\n" if part.is_list else "\n\n").join(lines))
    return "\n\n".join(blocks) + "\n"


def _columns(table: Table) -> str:
    """Columns under a rule, those of the style ``words`` aligned to the left.

    It is not laid out by rich, whose import takes a fifth of the time that ``report`` may take.
    """
    head = [column.name or column.group for column in table.columns]
    left = {index for index, column in enumerate(table.columns) if column.style == "words"}
    head, *rows = _aligned([head, *table.rows], 0, left)
    rule = "\u2500" * len(" ".join(head))
    return "\n".join([" ".join(head).rstrip(), rule, *(" ".join(row).rstrip() for row in rows)])


def _aligned(
    lines: Sequence[Sequence[str]], least: int, left: Collection[int] = ()
) -> list[list[str]]:
    """Cells padded to equal widths, the first column and those in ``left`` aligned to the left."""
    widths = [max(least, *map(len, column)) for column in zip(*lines, strict=True)]
    return [
        [
            cell.ljust(width) if index == 0 or index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
    ]


def _escape(text: str) -> str:
    """Escape what Markdown would read as a mark in what a run or a user wrote."""
    marked = _MARKS.sub(r"\\\g<0>", " ".join(printable(text).split()))
    return _NUMBERED.sub(r"\1\\\2", marked)
