"""Write a table's report and exports."""

from __future__ import annotations

from collections.abc import Iterator

from ablations.files import CSV_FILE, LATEX_FILE
from ablations.folder import TableFolder
from ablations.folder.base import LATER_NUMBERS, NUMBERS
from ablations.report.facts import cost_grid, facts
from ablations.report.figures import table_figures
from ablations.report.latex import to_latex
from ablations.report.layout import TEMPLATES, to_csv, write_files
from ablations.report.numbers import compute_numbers
from ablations.report.paper import order_of_rows, regime, regime_grid, regime_warning
from ablations.report.results import results_grid
from ablations.report.runs import problems
from ablations.report.seeds import seeds_grid, shares_of_diverged, verdicts
from ablations.report.table_numbers import TableNumbers
from ablations.report.tuning import tuning_grid
from ablations.tables.warn import stale_rows, warnings_of
from experiments.records.source import source_warnings


def write_report(folder: TableFolder) -> str:
    """Write the report into a table's folder: HTML, Markdown, LaTeX, CSV and plots.

    Returns:
        The report for the terminal.
    """
    table = compute_numbers(folder)
    plan, corpus = table.plan, table.plan.base.data.corpus
    total = sum(len(row.seeds) for row in table.rows)
    results = results_grid(table, folder.path)
    unfinished = list(problems(table, folder))
    order, ratios = "", []
    if plan.is_compared and corpus.task == "translation":
        order = order_of_rows(table)
        if table.base and table.base.results:
            first = next(run for run in table.base.runs if run.result is not None)
            ratios = regime(plan.base, table.base.results[0], first.learning_rates)
    warnings = list(warnings_of(plan, [result.device for result in table.results]))
    runs = [run for row in table.rows for run in row.runs]
    warnings += [*stale_rows(runs), *source_warnings(runs), *_without_score(table)]
    values = {
        "title": plan.title,
        "headline": f"Table {plan.table} at scale {plan.scale} on {corpus.name} "
        f"({corpus.source_language} → {corpus.target_language}): "
        f"{len(table.results)} of {total} runs finished.",
        "results": results,
        "order_of_rows": order,
        "regime": regime_grid(ratios),
        "warning": regime_warning(ratios),
        "warnings": warnings,
        "problems": unfinished,
        "diverged": list(shares_of_diverged(table)),
        "seeds": seeds_grid(table),
        "verdicts": list(verdicts(table)),
        "tuning": tuning_grid(table, folder),
        "cost": cost_grid(table),
        "facts": list(facts(table)),
        "table": table,  # for the notes
    }
    figures = list(table_figures(table))
    exports = {LATEX_FILE: to_latex(table, results), CSV_FILE: to_csv(lines_of_runs(table, folder))}
    return write_files(folder.path, TEMPLATES / "table.j2", values, figures, exports)


def _without_score(table: TableNumbers) -> Iterator[str]:
    """A line for each of the user's measures that a run with translations has no score of."""
    translated = [result for result in table.results if result.diverged_at is None]
    for measure in table.measures:
        lacking = [result for result in translated if measure.of(result) is None]
        if measure.key and lacking:
            yield (
                f"{measure.label}: {len(lacking)} of {len(table.results)} finished runs have no "
                "score by the current function: run of the table scores them, or says why it cannot"
            )


def lines_of_runs(table: TableNumbers, folder: TableFolder) -> Iterator[list[object]]:
    """Heads, then each finished run's settings, scores and cost, and the paper's scores."""
    quoted: list[str] = []
    numbers: list[str] = []
    if table.plan.is_compared:
        quoted = [measure.name for measure in table.measures if not measure.key]
    for name in NUMBERS:
        known = (getattr(result, name) is not None for result in table.results)
        if name not in LATER_NUMBERS or any(known):
            numbers.append(name)
    numbers += [measure.name for measure in table.measures if measure.key]
    heads = ["row", *table.shown, *numbers]
    yield [*heads, *(f"paper_{name}" for name in quoted)]
    for row in table.rows:
        paper = [row.scores[name].paper for name in quoted]
        for run in row.runs:
            if run.result is not None:
                record = folder.record(run)
                yield [*(record[name] for name in heads), *paper]
