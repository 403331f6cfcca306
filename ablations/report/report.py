"""The report of a table: its results next to the paper's figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ablations.files import CSV_FILE, LATEX_FILE, PLAN_FILE
from ablations.report.exports import to_csv, to_latex
from ablations.report.figures import table_figures
from ablations.report.grids import cost_grid, results_grid, seeds_grid
from ablations.report.layout import TEMPLATES, Column, Grid
from ablations.report.notes import facts, regime, regime_warning
from ablations.report.numbers import TableNumbers, compute_numbers
from ablations.report.verdicts import order_of_rows, verdicts
from ablations.report.write import write_files
from experiments.figures.render import start_drawing
from transformer.variant import class_name, has_changed


def write_report(directory: Path) -> str:
    """Write the report into a table's directory: HTML, Markdown, LaTeX, CSV and figures.

    Returns:
        The report for the terminal.

    Raises:
        InputError: if the directory is not a table's, or a file in it cannot be read.
    """
    if (directory / PLAN_FILE).is_file():
        start_drawing()
    table = compute_numbers(directory)
    figures = list(table_figures(table))
    exports = {LATEX_FILE: to_latex(table), CSV_FILE: to_csv(table)}
    return write_files(directory, TEMPLATES / "table.j2", _values(table), figures, exports)


def _values(table: TableNumbers) -> dict[str, object]:
    """The values of the templates; a table that is not the paper's is not compared with it."""
    plan, base, results = table.plan, table.base, table.results
    corpus = plan.base.data.corpus
    total = sum(len(row.seeds) for row in table.rows)
    is_of_paper = plan.is_compared and corpus.task == "translation"
    numbers = regime(plan.base, base.results[0] if base and base.results else None)
    numbers = numbers if is_of_paper else []
    return {
        "title": plan.title,
        "headline": f"Table {plan.table} at scale {plan.scale} on {corpus.name} "
        f"({corpus.source_language} → {corpus.target_language}): "
        f"{len(results)} of {total} runs finished.",
        "results": results_grid(table),
        "order_of_rows": order_of_rows(table) if is_of_paper else "",
        "problems": list(_problems(table)),
        "verdicts": list(verdicts(table)),
        "seeds": seeds_grid(table),
        "cost": cost_grid(table),
        "regime": Grid(
            [
                Column("number", [x.name for x in numbers]),
                Column("here", [x.text for x in numbers], style="ours"),
                Column("paper", [f"{x.paper:g}" for x in numbers], style="theirs"),
            ]
        ),
        "warning": regime_warning(numbers),
        "facts": list(facts(table)),
        "table": table,  # for the notes
    }


def _problems(table: TableNumbers) -> Iterator[str]:
    for row in table.rows:
        for run in row.unfinished:
            yield f"{row.name}, seed {run.cell.seed}: {run}"
        variant = row.settings["model"]
        if isinstance(variant, str) and has_changed(variant):
            kind = class_name(variant)
            yield f"{row.name}: the source of {kind} has changed since the row was planned"
    for name in table.unplanned:
        yield f"{name}: left out, as {PLAN_FILE} does not list it"
