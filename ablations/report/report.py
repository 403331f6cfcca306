"""A table's report as Markdown, as one HTML file and for a terminal, from the files on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from ablations.report.document import COST, Document, Line, compose
from ablations.report.evidence import EVIDENCE
from ablations.report.layout import bullets, columns, escape, grid
from ablations.report.page import render
from ablations.report.plot import figure
from ablations.report.regime import REGIME
from ablations.report.summary import MEASURES, Summary, summarise
from experiments.run.files import write_atomically

MARKDOWN_FILE = "report.md"
HTML_FILE = "report.html"
_WIDE = 120


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
    figures = [
        f"{group} {name}".strip() for group in ("PPL", "BLEU") for name in document.figure_names
    ]
    parts = [
        f"# {escape(document.title)}",
        escape(document.headline),
        grid(
            ["row", *document.setting_names, *figures, *document.extra_names],
            [
                [line.name, *line.settings, *_figure_cells(line), *line.extras]
                for line in document.lines
            ],
        ),
        *_correlation_sentence(document),
    ]
    if document.verdicts or document.evidence:
        parts.append("## What the seeds can tell")
    if document.verdicts:
        parts.append(bullets(document.verdicts))
    if document.evidence:
        names = [f"{group} {name}" for group in ("PPL", "BLEU") for name in EVIDENCE]
        rows = [[x.name, x.seeds, *x.perplexity, *x.bleu] for x in document.evidence]
        parts.append(grid(["row", "seeds", *names], rows))
    if document.regime:
        parts += ["## The scale beside the paper's", grid(REGIME, document.regime)]
        parts += [escape(document.warning)] * bool(document.warning)
    if document.problems:
        parts += ["## Not finished", bullets(document.problems)]
    parts += [
        "## What it took",
        grid(["row", *COST], [[line.name, *line.cost] for line in document.lines]),
        "## How to read it",
        bullets(document.notes),
        "## What was run on what",
        bullets(f"{name}: {value}" for name, value in document.facts),
    ]
    return "\n\n".join(parts) + "\n"


def to_html(document: Document, summary: Summary) -> str:
    """The report as one file that needs no other."""
    figures = [figure(summary, name, label) for name, label in MEASURES.items()]
    return render(
        "report.html.j2",
        document=document,
        figures=[drawn for drawn in figures if drawn is not None],
        cost_names=COST,
        evidence_names=EVIDENCE,
        regime_names=REGIME,
        intervals=bool(document.evidence),
    )


def to_text(document: Document, width: int) -> str:
    """The report for a terminal: where it is too narrow a row's changes are left out, then what
    it was scored by besides.

    It is laid out here and not by rich, whose import alone would take a fifth of the time that
    the command may take.
    """
    layouts = ((True, True), (True, False), (False, False))
    tables = [_results(document, extras=extras, changes=changes) for extras, changes in layouts]
    fitting = (table for table in tables if max(map(len, table.splitlines())) <= width)
    table = next(fitting, tables[-1])
    cost = columns(["row", *COST], [[line.name, *line.cost] for line in document.lines])
    parts = [document.headline, table, cost, *_correlation_sentence(document), *document.verdicts]
    parts += [document.warning] * bool(document.warning)
    if document.problems:
        parts.append("\n".join(["Not finished:", *(f"  {text}" for text in document.problems)]))
    return "\n\n".join(parts) + "\n"


def announce(document: Document, directory: Path) -> None:
    """Print the report, and where its files are."""
    print(to_text(document, shutil.get_terminal_size((_WIDE, 24)).columns))
    print(f"report: {directory / MARKDOWN_FILE} and {directory / HTML_FILE}")


def _results(document: Document, *, extras: bool, changes: bool) -> str:
    names = document.figure_names
    header = ["row", *(name or group for group in ("PPL", "BLEU") for name in names)]
    rows = [[line.name, *_figure_cells(line)] for line in document.lines]
    if extras:
        header += document.extra_names
        rows = [[*cells, *line.extras] for cells, line in zip(rows, document.lines, strict=True)]
    left = [0]
    if changes:
        left.append(len(header))
        header.append("changes")
        rows = [[*cells, line.changes] for cells, line in zip(rows, document.lines, strict=True)]
    return columns(header, rows, left)


def _correlation_sentence(document: Document) -> list[str]:
    figures = ", ".join(f"{name} {value}" for name, value in document.correlations)
    return [f"Spearman's rank correlation with the paper's rows: {figures}."] if figures else []


def _figure_cells(line: Line) -> tuple[str, ...]:
    """The two groups of figures, with the state in the place of the first where none is done."""
    cells = (*line.perplexity, *line.bleu)
    done = not line.cost[3].startswith("0/")
    return cells if done else (line.state, *cells[1:])
