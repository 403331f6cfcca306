"""Write a table's report and exports."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from ablations.files import CSV_FILE, LATEX_FILE, PLAN_FILE
from ablations.report.figures import table_figures
from ablations.report.grids import (
    cost_grid,
    group_starts,
    our_parameters,
    our_score,
    paper_score,
    results_grid,
    seeds_grid,
    shown_setting,
)
from ablations.report.layout import TEMPLATES, Column, Grid, render
from ablations.report.numbers import RowNumbers, TableNumbers, compute_numbers
from ablations.report.sentences import facts, order_of_rows, regime, regime_warning, verdicts
from ablations.report.words import label
from ablations.report.write import write_files
from experiments.figures.render import start_drawing
from transformer import formats
from transformer.variant import class_name, has_changed

_SYMBOLS = {
    "num_layers": "$N$",
    "d_model": r"$d_{\text{model}}$",
    "d_ff": r"$d_{\text{ff}}$",
    "num_heads": "$h$",
    "d_k": "$d_k$",
    "d_v": "$d_v$",
    "dropout": r"$P_{\mathit{drop}}$",
    "label_smoothing": r"$\epsilon_{\mathit{ls}}$",
    "max_steps": "steps",
}
_SPECIAL = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "\N{MINUS SIGN}": "$-$",
        formats.MISSING: "--",
        "∞": r"$\infty$",
        "ε": r"$\epsilon$",
    }
)
_OF_RESULT = (
    *("seed", "perplexity", "bleu", "tokenised_bleu", "test_perplexity", "test_bleu", "f1"),
    *("test_f1", "parameters", "steps", "target_tokens", "flops", "train_seconds"),
    *("tokens_per_second", "device", "precision", "commit"),
)


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
    exports = {LATEX_FILE: _to_latex(table), CSV_FILE: _to_csv(table)}
    return write_files(directory, TEMPLATES / "table.j2", _values(table), figures, exports)


def _values(table: TableNumbers) -> dict[str, object]:
    """The values of the templates; a table that is not the paper's is not compared with it."""
    plan, base, results = table.plan, table.base, table.results
    corpus = plan.base.data.corpus
    total = sum(len(row.seeds) for row in table.rows)
    is_of_paper = plan.is_compared and corpus.task == "translation"
    finished = base.results[0] if base and base.results else None
    numbers = regime(plan.base, finished) if is_of_paper else []
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
                Column("number", [name for name, _, _ in numbers]),
                Column("here", [_three_digits(ours) for _, _, ours in numbers], style="ours"),
                Column("paper", [f"{paper:g}" for _, paper, _ in numbers], style="theirs"),
            ]
        ),
        "warning": regime_warning(numbers),
        "facts": list(facts(table)),
        "table": table,  # for the notes
    }


def _three_digits(value: float | None) -> str:
    return formats.MISSING if value is None else f"{value:.3g}"


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


def _to_latex(table: TableNumbers) -> str:
    """A ``tabular`` for ``\\input``, which needs booktabs and amsmath; blanks are the base's."""
    return render(
        TEMPLATES / "table.tex.j2",
        title=f"{table.plan.title}, scale {table.plan.scale}".replace("\n", " "),
        settings=[_SYMBOLS.get(name, label(name).translate(_SPECIAL)) for name in table.settings],
        figures=[*(measure.short for measure in table.measures), "params"],
        is_compared=table.plan.is_compared,
        rows=[[cell.translate(_SPECIAL) for cell in _cells(table, row)] for row in table.rows],
        starts=group_starts(table),
    )


def _cells(table: TableNumbers, row: RowNumbers) -> list[str]:
    cells = [row.name, *(shown_setting(row, name) for name in table.settings)]
    pairs = [(our_score(score, row), paper_score(score)) for score in row.scores.values()]
    pairs.append((our_parameters(row), str(row.reported.parameters_millions or "")))
    return cells + [cell for pair in pairs for cell in pair[: 1 + table.plan.is_compared]]


def _to_csv(table: TableNumbers) -> str:
    """A line for each finished run, with its settings, figures and cost, and the paper's."""
    settings = table.plan.shown
    quoted = table.plan.measures if table.plan.is_compared else ()
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *settings, *_OF_RESULT, *(f"paper_{name}" for name in quoted)])
    for row in table.rows:
        declared = [row.settings[name] for name in settings]
        paper = [row.scores[name].paper for name in quoted]
        for result in row.results:
            found = [getattr(result, name) for name in _OF_RESULT]
            writer.writerow([row.name, *declared, *found, *paper])
    return text.getvalue()
