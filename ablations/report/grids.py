"""The tables of a table's report: results, intervals, cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from ablations.figures.curves import group_of
from ablations.report.cells import NOISE, flops, interval, label, mean, needed, setting
from ablations.report.details import read_details
from ablations.report.layout import Column, Grid
from ablations.report.numbers import RowNumbers, Score, TableNumbers
from ablations.report.statistics import Difference, Estimate
from ablations.tables.changes import COLUMNS
from experiments.run.measures import MEASURES, Measure
from experiments.run.results import Result
from transformer import formats

# Scores that only some runs have, and their decimals.
_OTHER_SCORES = {
    "tokenised_bleu": ("BLEU tokenised", MEASURES["bleu"].digits),
    "averaged_perplexity": ("PPL averaged", MEASURES["perplexity"].digits),
    "averaged_bleu": ("BLEU averaged", MEASURES["bleu"].digits),
    "averaged_f1": ("F1 averaged", MEASURES["f1"].digits),
}


def results_grid(table: TableNumbers) -> Grid:
    """Settings, scores, sizes and, in a terminal, changes; the state of rows without a result."""
    rows = table.rows
    columns = [Column("row", [row.name for row in rows])]
    columns += [*_settings(table), *_scores(table), *_sizes(rows)]
    if any(row.planned.reference for row in rows):
        found = [row.planned.reference for row in rows]
        columns.append(Column("reference", found, style="theirs words", optional=1))
    changes = [
        " ".join(
            f"{COLUMNS.get(name, name)}={setting(name, row.settings[name])}"
            for name in table.shown_settings
            if name in row.changed
        )
        for row in rows
    ]
    columns.append(Column("changes", changes, style="words", only="terminal", optional=2))
    starts = group_starts(table)
    styles = [_style(row) + " group-start" * (index in starts) for index, row in enumerate(rows)]
    details = [read_details(table, row) for row in rows]
    if any(row.results and row.results[0].parses for row in rows):
        columns = _with_baseline(columns, next(x.results[0] for x in rows if x.results))
        styles.append("group-start")
        details.append(None)
    return Grid(columns, row_styles=styles, name="rows", details=details)


def state(row: RowNumbers) -> str:
    """The most urgent state of a row's unfinished runs; empty if there are none."""
    return max(row.unfinished, key=lambda run: run.urgency).short if row.unfinished else ""


def _style(row: RowNumbers) -> str:
    if row.results or row.is_published:
        return ""
    return "failed" if state(row) == "failed" else "unfinished"


def _settings(table: TableNumbers) -> Iterator[Column]:
    for name in table.shown_settings:
        cells = [
            setting(name, row.settings[name]) if row.is_base or name in row.changed else ""
            for row in table.rows
        ]
        yield Column(label(name), cells, style="setting", only="page")


def _scores(table: TableNumbers) -> Iterator[Column]:
    """Ours, the paper's where it has any, and differences where rows have the same text."""
    rows = table.rows
    has_differences = any(row.is_of_same_text and not row.is_base for row in rows)
    for measure in table.measures:
        name, group = measure.name, measure.short
        has_paper = any(row.scores[name].paper is not None for row in rows)
        ours = [our_score(row, name) for row in rows]
        if measure == table.measures[0]:
            waiting = [not row.results and not row.is_published for row in rows]
            ours = [state(x) if y else z for x, y, z in zip(rows, waiting, ours, strict=True)]
        yield Column("", ours, group, "ours")
        if has_paper:
            yield Column("paper", [paper_score(row, name) for row in rows], group, "theirs")
        if has_differences:
            yield Column("Δ", [_difference(row, name) for row in rows], group)
        if has_differences and has_paper:
            differences = [_paper_difference(row, name) for row in rows]
            yield Column("Δ paper", differences, group, "theirs")
    for name, (title, digits) in _OTHER_SCORES.items():
        if any(name in row.means for row in rows):
            yield Column(title, [mean(row.means.get(name), digits) for row in rows], optional=1)


def our_score(row: RowNumbers, name: str) -> str:
    """Our mean of the measure ``name`` with its spread."""
    score = row.scores[name]
    return "" if row.is_published else mean(score.ours, score.measure.digits)


def paper_score(row: RowNumbers, name: str) -> str:
    """The paper's figure of the measure ``name``."""
    return formats.number(row.scores[name].paper, row.scores[name].measure.paper_digits)


def _difference(row: RowNumbers, name: str) -> str:
    score = row.scores[name]
    if row.is_base or not row.is_of_same_text:
        return ""
    found = score.difference
    text = formats.difference(found.mean if found else None, score.measure.digits)
    return text + NOISE if found and found.within_noise else text


def _paper_difference(row: RowNumbers, name: str) -> str:
    score = row.scores[name]
    if row.is_base or not row.is_of_same_text:
        return ""
    return formats.difference(score.paper_difference, score.measure.paper_digits)


def _sizes(rows: Sequence[RowNumbers]) -> Iterator[Column]:
    """FLOPs by the model's products, those by time and nominal peak as in the paper, parameters."""
    reported = [row.planned.reported for row in rows]
    if any(each.flops is not None for each in reported):
        nominal = [[x.flops_nominal for x in row.results] for row in rows]
        yield Column("", [flops(x.flops for x in row.results) for row in rows], "FLOPs", "ours")
        yield Column("nominal", list(map(flops, nominal)), "FLOPs")
        yield Column("paper", [flops([each.flops]) for each in reported], "FLOPs", "theirs")
    heads, only = "params (M)", "page"
    yield Column("", [our_parameters(row) for row in rows], heads, "ours", only)
    if any(each.parameters_millions for each in reported):
        yield Column("paper", [paper_parameters(row) for row in rows], heads, "theirs", only)


def our_parameters(row: RowNumbers) -> str:
    """The parameters of our model in millions."""
    if row.is_published:
        return ""
    return formats.millions(row.results[0].parameters) if row.results else formats.MISSING


def paper_parameters(row: RowNumbers) -> str:
    """The paper's parameters in millions."""
    return str(row.planned.reported.parameters_millions or "")


def _with_baseline(columns: Sequence[Column], result: Result) -> list[Column]:
    """Add a row with the F1 of trees that branch to the right, the same for all runs."""
    f1 = {
        MEASURES[name].short: formats.number(parses.baseline_f1, MEASURES[name].digits)
        for name, parses in (("f1", result.parses), ("test_f1", result.test_parses))
        if parses is not None
    }
    last = ["right-branching"]
    last += [f1.get(column.group, "") if column.style == "ours" else "" for column in columns[1:]]
    return [
        replace(column, cells=[*column.cells, cell])
        for column, cell in zip(columns, last, strict=True)
    ]


def group_starts(table: TableNumbers) -> list[int]:
    """The indices of rows above which the table has a rule: as the paper's, or by language."""
    grouped = table.plan.is_compared
    groups = [
        (
            row.settings["target_language"],
            group_of(row.name) if grouped and not row.is_published else "",
        )
        for row in table.rows
    ]
    return [index for index, (above, own) in enumerate(pairwise(groups), 1) if own != above]


def seeds_grid(table: TableNumbers) -> Grid:
    """Intervals and verdicts of all rows with a result; empty if no row has two."""
    rows = [row for row in table.rows if row.results and table.has_seeds]
    has_others = any(not row.is_base for row in rows)
    last = table.plan.measures[-1]
    pairs = [row.scores[last].ours if row.is_base else row.scores[last].difference for row in rows]
    columns = [
        Column("row", [row.name for row in rows]),
        Column("seeds", [str(pair.count if pair else 0) for pair in pairs]),
    ]
    for measure in table.measures:
        scores, group = [row.scores[measure.name] for row in rows], measure.short
        columns.append(Column("95 %", [_interval(x.ours, measure) for x in scores], group))
        if not has_others:
            continue
        differences = [
            "" if row.is_base else _interval(row.scores[measure.name].difference, measure)
            for row in rows
        ]
        columns.append(Column("Δ, 95 %", differences, group))
        columns.append(Column("verdict", [score.verdict for score in scores], group))
        if table.plan.is_compared:
            columns.append(Column("sign as in paper", [x.agreement for x in scores], group))
        columns.append(Column("seeds needed", [_needed(score) for score in scores], group))
    return Grid(columns)


def _interval(value: Estimate | None, measure: Measure) -> str:
    if value is None:
        return formats.MISSING
    return interval(value, measure.digits, signed=isinstance(value, Difference))


def _needed(score: Score) -> str:
    return needed(score.difference) if score.difference and score.verdict else ""


def cost_grid(table: TableNumbers) -> Grid:
    """The cost of each row: means over its runs."""
    rows = [row for row in table.rows if not row.is_published]

    def column(name: str, cell: Callable[[Sequence[Result]], str]) -> Column:
        return Column(name, [cell(x.results) if x.results else formats.MISSING for x in rows])

    columns = [
        Column("row", [row.name for row in rows]),
        Column("seeds", [f"{len(row.results)}/{len(row.planned.seeds)}" for row in rows]),
        column("parameters (M)", lambda runs: formats.millions(runs[0].parameters)),
    ]
    if table.plan.is_compared:
        columns.append(
            column("with 40,960 rows", lambda x: formats.millions(x[0].parameters_paper_vocab))
        )
    columns += [
        column("FLOPs", lambda runs: flops(x.flops for x in runs)),
        column("tokens/s", lambda runs: formats.count(fmean(x.tokens_per_second for x in runs))),
        column("training", lambda runs: formats.duration(fmean(x.train_seconds for x in runs))),
    ]
    return Grid(columns)
