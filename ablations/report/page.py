"""What any report consists of: sections of text, tables and figures, before they are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from experiments.figures.style import Spec


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
    """Rows of cells, the first of which names the row; ``row_styles`` are classes of the CSS.

    In HTML, a table with a ``name`` can be sorted and filtered, and a row opens to its ``details``.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    row_styles: tuple[str, ...] = ()
    terminal: bool = False
    name: str = ""
    details: tuple[tuple[Section, ...], ...] = ()
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
            name=self.name,
            details=self.details or ((),) * len(self.rows),
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


@dataclass(frozen=True, slots=True)
class Log:
    """Lines that a program wrote, in HTML alone."""

    content: tuple[str, ...]
    terminal = False
    kind = "log"


@dataclass(frozen=True, slots=True)
class Links:
    """Names and paths of files, relative to the report, in HTML alone."""

    content: tuple[tuple[str, str], ...]
    terminal = False
    kind = "links"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A Vega-Lite specification, which is drawn to files under ``name``."""

    name: str
    spec: Spec
    caption: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures, in Markdown and HTML."""

    content: tuple[Figure, ...]
    terminal = False
    kind = "figures"


Part = Table | Text | Facts | Log | Links | Figures


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

    @property
    def figures(self) -> list[Figure]:
        """All figures, in their order."""
        return [
            figure
            for section in self.sections
            for part in section.parts
            if isinstance(part, Figures)
            for figure in part.content
        ]


def make_page(title: str, *sections: tuple[str, Sequence[Part]]) -> Page:
    """A page without empty parts and sections."""
    return Page(title, make_sections(*sections))


def make_sections(*sections: tuple[str, Sequence[Part]]) -> tuple[Section, ...]:
    """Sections without those that are empty and without empty parts."""
    filled = (
        Section(heading, tuple(part for part in parts if any(part.content)))
        for heading, parts in sections
    )
    return tuple(section for section in filled if section.parts)
