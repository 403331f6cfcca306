"""A search's report as Markdown, as one HTML file and for a terminal, from the files on disk."""

from __future__ import annotations

from pathlib import Path

from ablations.report.layout import bullets, columns, escape, grid
from ablations.report.page import render
from ablations.report.report import HTML_FILE, MARKDOWN_FILE
from ablations.search.document import ENOUGH, Document, compose
from ablations.search.search import load_search
from ablations.search.trials import ranked, read_trials
from experiments.run.files import write_atomically

_BEST = ("setting", "base", "best")


def write_search_report(directory: Path) -> Document:
    """Write ``report.md`` and ``report.html`` into a search's directory.

    Raises:
        InputError: if the directory is not a search's, or a file in it cannot be read.
    """
    search = load_search(directory)
    trials = read_trials(search, directory)
    shares: dict[str, float] = {}
    if len(ranked(trials)) >= ENOUGH:
        from ablations.search.study import importances  # Optuna's, which takes a while to import

        shares = importances(search, trials)
    document = compose(search, trials, shares)
    write_atomically(directory / MARKDOWN_FILE, to_markdown(document))
    write_atomically(directory / HTML_FILE, render("search.html.j2", document=document))
    return document


def to_markdown(document: Document) -> str:
    """The report in GitHub's Markdown."""
    parts = [
        f"# {escape(document.title)}",
        escape(document.headline),
        escape(document.verdict),
    ]
    if document.best:
        parts.append(grid(_BEST, document.best))
    parts += ["## Which parameters matter", escape(document.importances)]
    if document.lines:
        parts += ["## Trials", grid(document.names, document.lines)]
    if document.problems:
        parts += ["## Without a result", bullets(document.problems)]
    parts += [
        "## How to read it",
        bullets(document.notes),
        "## What was run on what",
        bullets(f"{name}: {value}" for name, value in document.facts),
    ]
    return "\n\n".join(parts) + "\n"


def to_text(document: Document) -> str:
    """The report for a terminal: what was found, and what went wrong."""
    parts = [document.headline, document.verdict]
    if document.best:
        parts += [columns(_BEST, document.best), document.importances]
    if document.problems:
        parts.append("\n".join(["Without a result:", *(f"  {x}" for x in document.problems)]))
    return "\n\n".join(parts) + "\n"


def announce_search(document: Document, directory: Path) -> None:
    """Print the report, and where its files are."""
    print(to_text(document))
    print(f"report: {directory / MARKDOWN_FILE} and {directory / HTML_FILE}")
