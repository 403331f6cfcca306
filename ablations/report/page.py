"""Lay out any report as Markdown, as one HTML file and for a terminal."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ablations.files import HTML_FILE, MARKDOWN_FILE
from experiments.run.files import write_atomically

_TEMPLATES = Path(__file__).parent / "templates"
_MARKS = re.compile(r"[\\`*<>\[\]]|(?<!\w)_|_(?!\w)")
_DEFAULT_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; columns of a ``group`` stand under a common head.

    ``style`` is a class of ``report.css``. A column may be ``only`` for the page or the terminal;
    a terminal that is too narrow leaves out those of the highest ``optional`` rank first.
    """

    name: str
    group: str = ""
    style: str = ""
    only: Literal["", "page", "terminal"] = ""
    optional: int = 0

    @property
    def title(self) -> str:
        """The name with that of its group."""
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of cells, the first of which names the row; ``row_styles`` are classes of the CSS."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    row_styles: tuple[str, ...] = ()
    terminal: bool = False
    kind = "table"

    def select(self, *omit: str, optional: int = 2) -> Table:
        """The table without columns that are ``only`` for ``omit`` or above a rank ``optional``."""
        kept = [
            index
            for index, column in enumerate(self.columns)
            if column.only not in omit and column.optional <= optional
        ]
        return Table(
            columns=tuple(self.columns[index] for index in kept),
            rows=tuple(tuple(row[index] for index in kept) for row in self.rows),
            row_styles=self.row_styles or ("",) * len(self.rows),
        )

    @property
    def content(self) -> Sequence[object]:
        """What makes the part empty if it is."""
        return self.rows

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Adjacent columns of the same group, counted."""
        found: list[tuple[str, int]] = []
        for column in self.columns:
            if found and found[-1][0] == column.group:
                found[-1] = (column.group, found[-1][1] + 1)
            else:
                found.append((column.group, 1))
        return found


@dataclass(frozen=True, slots=True)
class Text:
    """One paragraph, or several lines that belong together as a list."""

    content: tuple[str, ...]
    style: str = ""
    is_list: bool = False
    terminal: bool = False
    kind = "text"


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    content: tuple[tuple[str, str], ...]
    terminal = False
    kind = "facts"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A figure of the HTML page: data for the macro ``shape`` of ``figures.html.j2``."""

    shape: Literal["scatter", "history", "bars"]
    data: Any
    caption: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures side by side, in HTML alone."""

    content: tuple[Figure, ...]
    terminal = False
    kind = "figures"


Part = Table | Text | Facts | Figures


@dataclass(frozen=True, slots=True)
class Section:
    """Parts under a heading."""

    heading: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A report: a title and sections, those of them that are not empty."""

    title: str
    sections: tuple[Section, ...]

    def part(self, heading: str, kind: type[Part]) -> Any:
        """The first part of a kind under a heading."""
        section = next(section for section in self.sections if section.heading == heading)
        return next(part for part in section.parts if isinstance(part, kind))


def make_page(title: str, *sections: tuple[str, Sequence[Part]]) -> Page:
    """A page without empty parts and sections."""
    filled = (
        Section(heading, tuple(part for part in parts if any(part.content)))
        for heading, parts in sections
    )
    return Page(title, tuple(section for section in filled if section.parts))


def write_page(page: Page, directory: Path) -> None:
    """Write ``report.md`` and ``report.html``."""
    write_atomically(directory / MARKDOWN_FILE, to_markdown(page))
    write_atomically(directory / HTML_FILE, to_html(page))


def print_page(page: Page, directory: Path) -> None:
    """Print the report as wide as the terminal, and where its files are."""
    print(to_text(page, shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns))
    print(f"report: {directory / MARKDOWN_FILE} and {directory / HTML_FILE}")


def to_markdown(page: Page) -> str:
    """The report in GitHub's Markdown, without figures."""
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
            return []


def to_html(page: Page) -> str:
    """The report as one HTML file that needs no other."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    return environment.get_template("report.html.j2").render(style=style, page=page)


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
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))
