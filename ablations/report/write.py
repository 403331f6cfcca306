"""Write a report's files, and print it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from ablations.files import FIGURES, HTML_FILE, MARKDOWN_FILE
from ablations.report.html import to_html
from ablations.report.page import Page
from ablations.report.plain import to_markdown, to_text
from experiments.figures.render import draw, on_white
from transformer.errors import InputError
from transformer.files import write_atomically

_DEFAULT_WIDTH = 120


def write_page(page: Page, directory: Path, tables: Mapping[str, str] | None = None) -> None:
    """Write the report as Markdown and HTML, and its figures as SVG and PNG.

    Args:
        tables: further files of the report, such as its LaTeX: their contents by name
    """
    drawn = draw({figure.name: figure.spec for figure in page.figures})
    folder = directory / FIGURES
    if drawn:
        folder.mkdir(exist_ok=True)
    for name, (svg, png) in drawn.items():
        write_atomically(folder / f"{name}.svg", on_white(svg))
        write_atomically(folder / f"{name}.png", png)
    for name, content in (tables or {}).items():
        write_atomically(directory / name, content)
    write_atomically(directory / MARKDOWN_FILE, to_markdown(page))
    write_atomically(
        directory / HTML_FILE, to_html(page, {name: svg for name, (svg, _) in drawn.items()})
    )


def print_page(page: Page, directory: Path) -> None:
    """Print the report as wide as the terminal, and where its files are."""
    print(to_text(page, shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns))
    print(f"report: {directory / HTML_FILE}, and its other formats and figures next to it")


def open_page(directory: Path) -> None:
    """Show the report in the user's browser.

    Raises:
        InputError: if there is none.
    """
    import webbrowser

    path = (directory / HTML_FILE).resolve()
    if not webbrowser.open(path.as_uri()):
        raise InputError(f"no browser was found here: open {path} in one")
