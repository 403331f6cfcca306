"""A table's report as Markdown, as one HTML file and for a terminal, from the files on disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablations.document import (
    BLEU_DIGITS,
    COST,
    FIGURES,
    PERPLEXITY_DIGITS,
    Document,
    Line,
    compose,
)
from ablations.plot import figure
from ablations.summary import Summary, summarise
from experiments.files import write_atomically

MARKDOWN_FILE = "report.md"
HTML_FILE = "report.html"
_TEMPLATES = Path(__file__).parent / "templates"
_WIDE = 104
_MARKS = re.compile(r"[\\`*<>\[\]]|(?<!\w)_|_(?!\w)")


def write_report(directory: Path) -> Document:
    """Write ``report.md`` and ``report.html`` into a table's directory.

    Raises:
        InputError: if the directory is not a table's, or a file in it cannot be read.
    """
    summary = summarise(directory)
    document = compose(summary)
    write_atomically(directory / MARKDOWN_FILE, to_markdown(document))
    write_atomically(directory / HTML_FILE, to_html(document, summary))
    return document


def to_markdown(document: Document) -> str:
    """The report in GitHub's Markdown."""
    figures = [f"{group} {name}".strip() for group in ("PPL", "BLEU") for name in FIGURES]
    parts = [
        f"# {_escape(document.title)}",
        _escape(document.headline),
        _grid(
            ["row", *document.setting_names, *figures],
            [[line.name, *line.settings, *_figure_cells(line)] for line in document.lines],
        ),
        "Spearman's rank correlation with the paper's rows: "
        + ", ".join(f"{name} {value}" for name, value in document.correlations)
        + ".",
    ]
    if document.problems:
        parts += ["## Not finished", _bullets(document.problems)]
    parts += [
        "## What it took",
        _grid(["row", *COST], [[line.name, *line.cost] for line in document.lines]),
        "## How to read it",
        _bullets(document.notes),
        "## What was run on what",
        _bullets(f"{name}: {value}" for name, value in document.facts),
    ]
    return "\n\n".join(parts) + "\n"


def to_html(document: Document, summary: Summary) -> str:
    """The report as one file that needs no other."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    figures = [
        figure("BLEU", "bleu", summary.rows, BLEU_DIGITS),
        figure("Perplexity", "perplexity", summary.rows, PERPLEXITY_DIGITS),
    ]
    return environment.get_template("report.html.j2").render(
        document=document,
        figures=[drawn for drawn in figures if drawn is not None],
        figure_names=FIGURES,
        cost_names=COST,
    )


def print_report(document: Document, console: Console) -> None:
    """Print the report as tables that fit the terminal."""
    console.print(Text(document.headline), style="bold")
    wide = console.width >= _WIDE
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1 if wide else 0, 0, 0))
    table.add_column("row", no_wrap=True)
    if wide:
        table.add_column("changes")
    for group in ("PPL", "BLEU"):
        for name in FIGURES:
            table.add_column(f"{group}\n{name}".strip(), justify="right")
    for line in document.lines:
        changes = [line.changes] if wide else []
        table.add_row(*map(Text, [line.name, *changes, *_figure_cells(line)]))
    console.print(table)
    cost = Table(box=SIMPLE_HEAD, pad_edge=False)
    cost.add_column("row", no_wrap=True)
    for name in COST:
        cost.add_column(name, justify="right", no_wrap=True)
    for line in document.lines:
        cost.add_row(*map(Text, [line.name, *line.cost]))
    console.print(cost)
    for name, value in document.correlations:
        console.print(Text(f"rank correlation with the paper, {name}: {value}"))
    for problem in document.problems:
        console.print(Text(problem), style="red", soft_wrap=True)


def _figure_cells(line: Line) -> tuple[str, ...]:
    """The two groups of figures, with the state in the place of the first where none is done."""
    cells = (*line.perplexity, *line.bleu)
    done = not line.cost[3].startswith("0/")
    return cells if done else (line.state, *cells[1:])


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, padded so that it reads as plain text too; the first column is left."""
    cells = [[_escape(cell).replace("|", "\\|") for cell in line] for line in (header, *rows)]
    widths = [max(3, *(len(line[column]) for line in cells)) for column in range(len(header))]

    def join(line: Sequence[str]) -> str:
        first = line[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        return f"| {' | '.join([first, *rest])} |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([join(cells[0]), join(rule), *map(join, cells[1:])])


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_escape(line)}" for line in lines)


def _escape(text: str) -> str:
    """Keep Markdown from reading marks in what a run or a user wrote."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))
