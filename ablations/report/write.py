"""Write a report's files, and print it."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablations.files import FIGURES, HTML_FILE, MARKDOWN_FILE
from ablations.report.layout import TEMPLATES, Figure, render
from experiments.figures.render import draw, on_white, script
from transformer.errors import InputError
from transformer.files import write_atomically

_DEFAULT_WIDTH = 120


def write_files(
    directory: Path,
    template: Path,
    values: Mapping[str, Any],
    figures: Sequence[Figure],
    exports: Mapping[str, str] | None = None,
) -> str:
    """Write a report as HTML and Markdown, and its figures as SVG and PNG.

    Args:
        template: of both formats; that of the terminal is next to it and ends in ``.txt.j2``
        values: for the template, among them ``title``
        exports: further files, such as LaTeX: their contents by name

    Returns:
        The report for the terminal, as wide as it is.
    """
    drawn = draw({figure.name: figure.spec for figure in figures})
    if drawn:
        (directory / FIGURES).mkdir(exist_ok=True)
    for name, (svg, png) in drawn.items():
        write_atomically(directory / FIGURES / f"{name}.svg", on_white(svg))
        write_atomically(directory / FIGURES / f"{name}.png", png)
    for name, content in (exports or {}).items():
        write_atomically(directory / name, content)
    values = {**values, "figures": figures}
    markdown = render(template, layout="markdown.j2", folder=FIGURES, **values)
    write_atomically(directory / MARKDOWN_FILE, _single_spaced(markdown))
    vega = script() if drawn else ""
    html = render(template, layout="html.j2", drawn=drawn, vega=vega, **values)
    write_atomically(directory / HTML_FILE, html)
    width = shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns
    return _single_spaced(render(template.with_suffix(".txt.j2"), width=width, **values))


def _single_spaced(text: str) -> str:
    """Text with one empty line between its parts."""
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


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
