"""Write a report's files: pages, tables and plots."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import shutil
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ablations.files import FIGURES, HTML_FILE, MARKDOWN_FILE
from ablations.report.grid import escape_latex, escape_markdown, markdown_table, terminal_table
from experiments.figures.render import DrawingError, draw, on_white, script
from experiments.figures.style import Spec
from experiments.records.progress import printable
from transformer import formats
from transformer.errors import InputError
from transformer.files import make_directory, remove, within, write_atomically
from transformer.terminal import line_width, say, wrap

TEMPLATES = Path(__file__).parent / "templates"
# The names of plots that a report may have.
_FIGURE = re.compile(
    r"((agreement|differences|seeds)-[A-Za-z_]\w*|perplexity-(parameters|flops)"
    r"|bleu-flops|curves|history|importances|slices|time|memory)\.(svg|png)"
)
_LONGEST = 2_000  # characters of a line in a terminal


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A plot: a Vega-Lite specification, which is drawn to files called ``name``."""

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
    """Write a report as HTML and Markdown, and its plots as SVG and PNG. If they cannot be drawn,
    the report has none, and a warning says so.

    Args:
        template: the template of both formats; the terminal's is next to it, ending in ``.txt.j2``
        values: values for the template, with ``title`` and, if there are any, ``warnings``
        exports: contents of further files by name, such as LaTeX

    Returns:
        The report for the terminal, fitted to its width.
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
    text = render(template.with_suffix(".txt.j2"), width=width, prose_width=line_width(), **values)
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
    """A line without control characters, with which foreign files could affect a terminal."""
    line = printable(line)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def prose(text: str, width: int | None) -> str:
    """Text for a terminal, in lines of this width; None for one line."""
    return wrap(_for_terminal(text), width)


def _single_spaced(text: str) -> str:
    """Text with one empty line between its parts."""
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def render(template: Path, *, layout: str = "", **values: object) -> str:
    """Fill in a template.

    Args:
        layout: for a template of several formats, the file of the format's macros, which the
            template imports: ``html.j2`` or ``markdown.j2``
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
    used = (
        items,
        escape_latex,
        escape_markdown,
        markdown_table,
        terminal_table,
        formats.number,
        prose,
    )
    for function in used:
        filters[function.__name__] = function
    return environment


def items(text: str) -> list[str]:
    """The items of a list, each of which begins with ``- `` and may span several lines."""
    parts = re.split(r"^- ", text, flags=re.MULTILINE)
    # In HTML the text is marked as escaped, and its items must be too.
    return [type(text)(" ".join(part.split())) for part in parts if part.strip()]


def to_csv(lines: Iterable[Sequence[object]]) -> str:
    """Lines of cells as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def script_hashes() -> str:
    """The hashes with which a Content-Security-Policy allows the scripts inside a report."""
    own = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    hashes: list[str] = []
    for text in (script(), f"\n{own}"):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes.append(f"'sha256-{digest}'")
    return " ".join(hashes)


def print_page(text: str, directory: Path) -> None:
    """Print the report, and where its files are."""
    print(text)
    say(f"report: {directory / HTML_FILE}; its other formats and plots are next to it")


def open_page(directory: Path) -> None:
    """Show the report in the user's browser."""
    path = (directory / HTML_FILE).resolve()
    if not webbrowser.open(path.as_uri()):
        raise InputError(f"no browser was found here: open {path} in one")
