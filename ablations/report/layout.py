"""The files of a report, from grids, figures and templates."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ablations.files import FIGURES, HTML_FILE, MARKDOWN_FILE
from experiments.figures.render import DrawingError, draw, on_white, script
from experiments.figures.style import Spec
from experiments.records.progress import printable
from experiments.records.result import MEASURES
from transformer import formats
from transformer.errors import InputError
from transformer.files import make_directory, remove, within, write_atomically

TEMPLATES = Path(__file__).parent / "templates"
# Marks anywhere, underscores but those inside a word, entities, and what begins a block.
_MARKS = re.compile(
    r"[\\`*<>\[\]$]|~(?=[~\w])|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)"
    r"|^#(?=#{0,5}(\s|$))|^[-+](?=\s|$|-+$)"
)
# The names of figures that a report may have made.
_FIGURE = re.compile(
    rf"((agreement|differences|seeds)-({'|'.join(MEASURES)})|perplexity-(parameters|flops)"
    r"|bleu-flops|curves|history|importances|slices|time|memory)\.(svg|png)"
)
_LONGEST = 2_000  # letters of a line for a terminal
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
        **{character: f"${character}$" for character in "<>|"},  # which text fonts lack
        **{character: f"{{{character}}}" for character in "[*"},  # an option of the line before
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "\N{MINUS SIGN}": "$-$",
        formats.MISSING: "--",
        "∞": r"$\infty$",
        "ε": r"$\epsilon$",
    }
)


@dataclass(frozen=True, slots=True)
class Column:
    """A cell for each row; columns of a ``group`` stand under a common head.

    ``style`` is a class of ``report.css``. A terminal that is too narrow leaves out the columns of
    the highest ``optional`` rank first.
    """

    name: str
    cells: Sequence[str]
    group: str = ""
    style: str = ""
    optional: int = 0

    @property
    def title(self) -> str:
        """The name with that of its group."""
        return f"{self.group} {self.name}".strip()


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns, the first of which names the rows; ``row_styles`` are classes of ``report.css``.

    In HTML, a grid with a ``name`` can be sorted and filtered, and a row opens to its ``details``.
    """

    columns: Sequence[Column]
    row_styles: Sequence[str] = ()
    name: str = ""
    details: Sequence[object] = ()

    @classmethod
    def of(cls, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid:
        """Columns under these heads, from rows of cells."""
        return cls([Column(head, [row[i] for row in rows]) for i, head in enumerate(heads)])

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells row by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Adjacent columns of the same group, counted."""
        found = groupby(self.columns, key=lambda column: column.group)
        return [(group, len(list(columns))) for group, columns in found]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A Vega-Lite specification, which is drawn to files under ``name``."""

    name: str
    spec: Spec
    caption: str


def write_files(
    directory: Path,
    template: Path,
    values: Mapping[str, Any],
    figures: Sequence[Figure],
    exports: Mapping[str, str] | None = None,
) -> str:
    """Write a report as HTML and Markdown, and its figures as SVG and PNG. If they cannot be drawn,
    it has none, and a line that says so.

    Args:
        template: of both formats; that of the terminal is next to it and ends in ``.txt.j2``
        values: for the template, among them ``title`` and, if there are any, ``warnings``
        exports: further files, such as LaTeX: their contents by name

    Returns:
        The report for the terminal, as wide as it is.
    """
    warned = list(values.get("warnings", ()))
    try:
        drawn = draw({figure.name: figure.spec for figure in figures})
    except DrawingError as error:
        figures, drawn = [], {}
        warned.append(f"{error}, so this report has none")
    values = {**values, "figures": figures, "warnings": warned}
    vega = script() if drawn else ""
    width = shutil.get_terminal_size((120, 24)).columns
    html = render(template, layout="html.j2", drawn=drawn, vega=vega, **values)
    markdown = render(template, layout="markdown.j2", folder=FIGURES, **values)
    text = render(template.with_suffix(".txt.j2"), width=width, **values)
    files = {**(exports or {}), MARKDOWN_FILE: _single_spaced(markdown), HTML_FILE: html}
    folder = within(directory, FIGURES)
    if drawn:
        make_directory(folder)
    for name, (svg, png) in drawn.items():
        write_atomically(folder / f"{name}.svg", on_white(svg))
        write_atomically(folder / f"{name}.png", png)
    for path in folder.glob("*"):
        if _FIGURE.fullmatch(path.name) and path.stem not in drawn:  # of an earlier report
            remove(path)
    for name, content in files.items():
        write_atomically(directory / name, content)
    return "\n".join(_for_terminal(line) for line in _single_spaced(text).split("\n"))


def _for_terminal(line: str) -> str:
    """A line without what files of others could do to a terminal."""
    line = printable(line)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _single_spaced(text: str) -> str:
    """Text with one empty line between its parts."""
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def render(template: Path, *, layout: str = "", **values: object) -> str:
    """Fill in a template.

    Args:
        layout: for a template of any format, the file of the format's macros, which the template
            imports: ``html.j2`` or ``markdown.j2``
    """
    environment = _environment(template.parent, layout == "html.j2")
    return environment.get_template(template.name).render(layout=layout, **values)


@cache
def _environment(folder: Path, escape: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: Any = environment.filters
    used = (items, escape_latex, escape_markdown, markdown_table, terminal_table, formats.number)
    for each in used:
        filters[each.__name__] = each
    return environment


def items(text: str) -> list[str]:
    """The items of a list, each of which begins with ``- `` and may go over several lines."""
    found = re.split(r"^- ", text, flags=re.MULTILINE)
    return [type(text)(" ".join(item.split())) for item in found if item.strip()]


def escape_markdown(text: str) -> str:
    """Escape what Markdown would read as a mark in what a run or a user wrote."""
    marked = _MARKS.sub(r"\\\g<0>", " ".join(printable(text).split()))
    return _NUMBERED.sub(r"\1\\\2", marked)


def escape_latex(text: str) -> str:
    """Text for LaTeX; the settings of Table 3 as its symbols."""
    return _SYMBOLS.get(text) or printable(text).translate(_SPECIAL)


def markdown_table(grid: Grid) -> str:
    """A table in GitHub's Markdown."""
    lines = [[column.title for column in grid.columns], *grid.rows]
    cells = _aligned([[escape_markdown(x).replace("|", "\\|") for x in y] for y in lines], 3)
    rule = ["-" * len(cells[0][0]), *("-" * (len(x) - 1) + ":" for x in cells[0][1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (cells[0], rule, *cells[1:]))


def terminal_table(grid: Grid, width: int) -> str:
    """Columns under a rule; those that do not fit are left out, where rich would wrap them."""
    lines: list[str] = []
    for rank in (2, 1, 0) if grid.rows else ():
        shown = replace(grid, columns=[x for x in grid.columns if x.optional <= rank])
        heads = [column.name or column.group for column in shown.columns]
        lines = [" ".join(cells) for cells in _aligned([heads, *shown.rows], 0)]
        lines.insert(1, "\u2500" * len(lines[0]))
        if len(lines[0]) <= width:
            break
    return "\n".join(line.rstrip() for line in lines)


def _aligned(lines: Sequence[Sequence[str]], least: int) -> list[list[str]]:
    """Cells padded to equal widths, the first column aligned to the left."""
    widths = [max(least, *map(len, column)) for column in zip(*lines, strict=True)]
    return [
        [
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
    ]


def script_hashes() -> str:
    """The hashes by which a Content-Security-Policy allows the scripts within a report's page."""
    own = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digests = (hashlib.sha256(x.encode()).digest() for x in (script(), f"\n{own}"))
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def print_page(text: str, directory: Path) -> None:
    """Print the report, and where its files are."""
    print(text)
    print(f"report: {directory / HTML_FILE}, and its other formats and figures next to it")


def open_page(directory: Path) -> None:
    """Show the report in the user's browser."""
    path = (directory / HTML_FILE).resolve()
    if not webbrowser.open(path.as_uri()):
        raise InputError(f"no browser was found here: open {path} in one")
