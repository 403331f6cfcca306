"""Write a table's report and exports."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace

from ablations.files import CSV_FILE, LATEX_FILE, PLAN_FILE
from ablations.folder import FIGURES, TableFolder
from ablations.report.figures import table_figures
from ablations.report.grids import cost_grid, results_grid, seeds_grid
from ablations.report.layout import TEMPLATES, Grid, render, write_files
from ablations.report.numbers import TableNumbers, compute_numbers, describe_state
from ablations.report.sentences import facts, order_of_rows, regime, regime_warning, verdicts
from ablations.tables.warn import warnings_of
from experiments.records.progress import printable
from transformer import formats
from transformer.variant import class_name, has_changed


def write_report(folder: TableFolder) -> str:
    """Write the report into a table's folder: HTML, Markdown, LaTeX, CSV and figures.

    Returns:
        The report for the terminal.
    """
    table = compute_numbers(folder)
    plan, results = table.plan, results_grid(table, folder.path)
    corpus = plan.base.data.corpus
    total = sum(len(row.seeds) for row in table.rows)
    is_of_paper = plan.is_compared and corpus.task == "translation"
    finished = table.base.results[0] if table.base and table.base.results else None
    numbers = regime(plan.base, finished) if is_of_paper else []
    ratios = [(x, f"{ours:.3g}" if ours else formats.MISSING, f"{y:g}") for x, ours, y in numbers]
    values = {
        "title": plan.title,
        "headline": f"Table {plan.table} at scale {plan.scale} on {corpus.name} "
        f"({corpus.source_language} → {corpus.target_language}): "
        f"{len(table.results)} of {total} runs finished.",
        "results": results,
        "order_of_rows": order_of_rows(table) if is_of_paper else "",
        "warnings": list(warnings_of(plan, [result.device for result in table.results])),
        "problems": list(_problems(table, folder)),
        "verdicts": list(verdicts(table)),
        "seeds": seeds_grid(table),
        "cost": cost_grid(table),
        "regime": Grid.of(("number", "here", "paper"), ratios),
        "warning": regime_warning(numbers),
        "facts": list(facts(table)),
        "table": table,  # for the notes
    }
    exports = {LATEX_FILE: _to_latex(table, results), CSV_FILE: _to_csv(table, folder)}
    return write_files(
        folder.path, TEMPLATES / "table.j2", values, list(table_figures(table)), exports
    )


def _problems(table: TableNumbers, folder: TableFolder) -> Iterator[str]:
    for row in table.rows:
        for run in row.unfinished:
            yield f"{row.name}, seed {run.seed}: {describe_state(run)}"
        variant = row.settings["model"]
        if isinstance(variant, str) and has_changed(variant):
            kind = class_name(variant)
            yield f"{row.name}: the source of {kind} has changed since the row was planned"
    for name in folder.unplanned:
        yield f"{name}: left out, as {PLAN_FILE} does not list it"


def _to_latex(table: TableNumbers, results: Grid) -> str:
    """A ``tabular`` for ``\\input``: the settings, the scores and the paper's, without Δ."""
    if not results.columns:  # no row has been run yet
        return ""
    row, *others = results.columns
    figures = ("setting", "ours", "theirs")
    kept = [x for x in others if x.style in figures and not x.name.startswith("Δ")]
    title = printable(f"{table.plan.title}, scale {table.plan.scale}")
    grid = replace(results, columns=[row, *kept])
    return render(TEMPLATES / "table.tex.j2", title=title, grid=grid)


def _to_csv(table: TableNumbers, folder: TableFolder) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(lines_of_runs(table, folder))
    return text.getvalue()


def lines_of_runs(table: TableNumbers, folder: TableFolder) -> Iterator[list[object]]:
    """Heads, then a line for each finished run: its settings, figures and cost, and the paper's."""
    quoted = table.plan.measures if table.plan.is_compared else ()
    heads = ["row", *table.shown, *FIGURES]
    yield [*heads, *(f"paper_{name}" for name in quoted)]
    for row in table.rows:
        paper = [row.scores[name].paper for name in quoted]
        for run in row.runs:
            if run.result is not None:
                record = folder.record(run)
                yield [*(record[name] for name in heads), *paper]
