"""Tables of a report in Markdown, LaTeX and text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from experiments.records.progress import printable
from transformer import formats

# Markup anywhere, underscores except inside a word, entities, and what begins a block.
_MARKS = re.compile(
    r"[\\`*<>\[\]$]|~(?=[~\w])|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)"
    r"|^#(?=#{0,5}(\s|$))|^[-+](?=\s|$|-+$)"
)
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
_SYMBOLS = {
    "N": "$N$",
    "d_model": r"$d_{\text{model}}$",
    "d_ff": r"$d_{\text{ff}}$",
    "h": "$h$",
    "d_k": "$d_k$",
    "d_v": "$d_v$",
    "P_drop": r"$P_{\mathit{drop}}$",
    "ε_ls": r"$\epsilon_{\mathit{ls}}$",
}
_SPECIAL = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{character: f"${character}$" for character in "<>|"},  # text fonts lack these
        **{character: f"{{{character}}}" for character in "[*"},  # options of the \\ before them
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "\N{MINUS SIGN}": "$-$",
        formats.MISSING: "--",
        "∞": r"$\infty$",
        "ε": r"$\epsilon$",
        "Δ": r"$\Delta$",
        "\N{ASTERISK OPERATOR}": "$^{*}$",
    }
)


@dataclass(frozen=True, slots=True)
class Column:
    """A cell for each row; columns of the same ``group`` are under a common head.

    ``style`` is a class of ``report.css``. In a narrow terminal the columns with the highest
    ``optional`` rank are left out first, those with rank 0 never.
    """

    name: str
    cells: Sequence[str]
    group: str = ""
    style: str = ""
    optional: int = 0

    @property
    def title(self) -> str:
        """The name, preceded by that of its group."""
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns, the first of which names the rows; ``row_styles`` are classes of ``report.css``.

    In HTML, a grid with a ``name`` can be sorted and filtered, and a row opens to show ``details``.
    """

    columns: Sequence[Column]
    row_styles: Sequence[str] = ()
    name: str = ""
    details: Sequence[object] = ()

    @classmethod
    def of(cls, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid:
        """Columns under these heads, from rows of cells."""
        columns: list[Column] = []
        for index, head in enumerate(heads):
            columns.append(Column(head, [row[index] for row in rows]))
        return cls(columns)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells row by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Adjacent columns of the same group, counted."""
        groups = groupby(self.columns, key=lambda column: column.group)
        return [(group, len(list(columns))) for group, columns in groups]


def filled(columns: Sequence[Column]) -> list[Column]:
    """The columns that have a value in some row."""
    blank = {"", formats.MISSING}
    return [column for column in columns if not blank.issuperset(column.cells)]


def escape_markdown(text: str) -> str:
    """Escape what Markdown would take for markup in text from a run or a user."""
    marked = _MARKS.sub(r"\\\g<0>", " ".join(printable(text).split()))
    return _NUMBERED.sub(r"\1\\\2", marked)


def escape_latex(text: str) -> str:
    """Escape text for LaTeX; the settings of Table 3 become its symbols."""
    return _SYMBOLS.get(text) or printable(text).translate(_SPECIAL)


def markdown_table(grid: Grid) -> str:
    """A table in GitHub's Markdown."""
    lines: list[list[str]] = []
    for cells in ([column.title for column in grid.columns], *grid.rows):
        lines.append([escape_markdown(cell).replace("|", "\\|") for cell in cells])
    heads, *rows = _aligned(lines, 3)
    rule = ["-" * (len(head) - 1) + ":" for head in heads]
    rule[0] = "-" * len(heads[0])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))


def terminal_table(grid: Grid, width: int) -> str:
    """Columns under a rule; optional ones that do not fit are left out (rich would wrap them)."""
    if not grid.rows:
        return ""
    lines: list[str] = []
    for rank in (2, 1, 0):
        columns = [column for column in grid.columns if column.optional <= rank]
        heads = [column.name or column.group for column in columns]
        rows = replace(grid, columns=columns).rows
        lines = [" ".join(cells) for cells in _aligned([heads, *rows], 0)]
        lines.insert(1, "\u2500" * len(lines[0]))
        if len(lines[0]) <= width:
            break
    return "\n".join(line.rstrip() for line in lines)


def _aligned(lines: Sequence[Sequence[str]], least: int) -> list[list[str]]:
    """Cells padded to equal widths, the first column aligned to the left."""
    widths = [max(least, *map(len, column)) for column in zip(*lines, strict=True)]
    aligned: list[list[str]] = []
    for first, *others in lines:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        aligned.append([first.ljust(widths[0]), *cells])
    return aligned
