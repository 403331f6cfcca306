"""The report of a table: its results next to the paper's figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ablations.files import CSV_FILE, LATEX_FILE, PLAN_FILE
from ablations.report.figures import (
    agreement_figures,
    curve_figures,
    seed_figures,
    size_figures,
)
from ablations.report.latex import to_latex
from ablations.report.notes import facts, notes, regime, regime_warning
from ablations.report.page import Column, Facts, Figures, Page, Table, Text, make_page
from ablations.report.results import cost_table, results_table, to_csv
from ablations.report.statistics import Correlation
from ablations.report.summary import Summary, summarise
from ablations.report.verdicts import seeds_table, verdicts
from ablations.report.write import write_page
from experiments.figures.render import start_drawing
from transformer import formats
from transformer.variant import class_name, has_changed


def write_report(directory: Path) -> Page:
    """Write the report into a table's directory: HTML, Markdown, LaTeX, CSV and figures.

    Raises:
        InputError: if the directory is not a table's, or a file in it cannot be read.
    """
    if (directory / PLAN_FILE).is_file():
        start_drawing()
    summary = summarise(directory)
    page = compose(summary)
    write_page(page, directory, {LATEX_FILE: to_latex(summary), CSV_FILE: to_csv(summary)})
    return page


def compose(summary: Summary) -> Page:
    """The report of a table; one that is not the paper's is not compared with it."""
    plan, base = summary.plan, summary.base
    corpus = plan.base.data.corpus
    total = sum(len(row.row.seeds) for row in summary.rows)
    headline = (
        f"Table {plan.table} at scale {plan.scale} on {corpus.name} "
        f"({corpus.source_language} → {corpus.target_language}): "
        f"{len(summary.results)} of {total} runs finished."
    )
    numbers, sentence = (), ""
    if plan.is_compared and corpus.task == "translation":
        numbers = regime(plan.base, base.results[0] if base and base.results else None)
        found = [(x.label, summary.correlation(x.name)) for x in summary.measures]
        shares = [f"{label} {_correlation(x)}" for label, x in found if x.count]
        if shares:
            sentence = f"Spearman's rank correlation with the paper's rows: {', '.join(shares)}."
    here, paper = Column("here", style="ours"), Column("paper", style="theirs")
    regime_rows = tuple(number.cells for number in numbers)
    return make_page(
        plan.title,
        (
            "",
            [
                Text((headline,), style="headline", terminal=True),
                results_table(summary),
                Text((sentence,), terminal=True),
            ],
        ),
        (
            "Not finished",
            [Text(tuple(_problems(summary)), style="problems", is_list=True, terminal=True)],
        ),
        ("Ours against the paper", [Figures(tuple(agreement_figures(summary)))]),
        (
            "What the seeds show",
            [
                Text(tuple(verdicts(summary)), is_list=True, terminal=True),
                Figures(tuple(seed_figures(summary))),
                seeds_table(summary),
            ],
        ),
        ("Learning curves", [Figures(tuple(curve_figures(summary)))]),
        ("Perplexity against size", [Figures(tuple(size_figures(summary)))]),
        ("Cost", [cost_table(summary)]),
        (
            "This scale and the paper's",
            [
                Table(columns=(Column("number"), here, paper), rows=regime_rows),
                Text((regime_warning(numbers),), terminal=True),
            ],
        ),
        ("How to read it", [Text(tuple(notes(summary)), is_list=True)]),
        ("Set-up", [Facts(tuple(facts(summary)))]),
    )


def _problems(summary: Summary) -> Iterator[str]:
    for row in summary.rows:
        for run in row.unfinished:
            yield f"{row.row.name}, seed {run.cell.seed}: {run}"
        variant = row.settings["model"]
        if isinstance(variant, str) and has_changed(variant):
            kind = class_name(variant)
            yield f"{row.row.name}: the source of {kind} has changed since the row was planned"
    for name in summary.unplanned:
        yield f"{name}: left out, as {PLAN_FILE} does not list it"


def _correlation(correlation: Correlation) -> str:
    rows = "1 row" if correlation.count == 1 else f"{correlation.count} rows"
    if correlation.value is None:
        return f"undefined ({rows})"
    value = formats.difference(correlation.value, 2)
    if correlation.interval is None:
        return f"{value} ({rows})"
    low, high = (formats.difference(end, 2) for end in correlation.interval)
    return f"{value} ({rows}, 95 % in {low} to {high})"
