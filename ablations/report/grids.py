"""Grids of a table's report: results, intervals, cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from ablations.figures.curves import group_of
from ablations.report.details import read_details
from ablations.report.layout import Column, Grid
from ablations.report.numbers import RowNumbers, Score, TableNumbers
from ablations.report.words import NOISE, flops, interval, label, mean, needed, setting
from ablations.tables.changes import COLUMNS
from experiments.records.result import MEASURES, Result
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
    references = [row.reference for row in rows]
    if any(references):
        columns.append(Column("reference", references, style="theirs words", optional=1))
    changes = [_changes(table, row) for row in rows]
    columns.append(Column("changes", changes, style="words", only="terminal", optional=2))
    states = [_state(row) for row in rows]
    styles = [state if state == "failed" else "unfinished" * bool(state) for state in states]
    for start in group_starts(table):
        styles[start] += " group-start"
    details = [read_details(table, row) for row in rows]
    if any(row.results and row.results[0].parses for row in rows):
        columns = _with_baseline(columns, table.results[0])
        styles.append("group-start")
        details.append({})
    return Grid(columns, row_styles=styles, name="rows", details=details)


def _state(row: RowNumbers) -> str:
    """The most urgent state of the runs of a row without a result; empty for others."""
    if row.results or not row.unfinished:
        return ""
    return max(row.unfinished, key=lambda run: run.urgency).short


def _changes(table: TableNumbers, row: RowNumbers) -> str:
    names = (name for name in table.settings if name in row.changed)
    return " ".join(f"{COLUMNS.get(x, x)}={setting(x, row.settings[x])}" for x in names)


def shown_setting(row: RowNumbers, name: str) -> str:
    """The value of a setting, blank where it is the base's."""
    return setting(name, row.settings[name]) if row.is_base or name in row.changed else ""


def _settings(table: TableNumbers) -> Iterator[Column]:
    for name in table.settings:
        cells = [shown_setting(row, name) for row in table.rows]
        yield Column(label(name), cells, style="setting", only="page")


def _scores(table: TableNumbers) -> Iterator[Column]:
    """Ours, the paper's where it has any, and differences where rows have the same text."""
    rows = table.rows
    has_differences = any(row.is_of_same_text and not row.is_base for row in rows)
    for measure in table.measures:
        scores, group = [row.scores[measure.name] for row in rows], measure.short
        pairs = list(zip(scores, rows, strict=True))
        has_paper = any(score.paper is not None for score in scores)
        ours = [our_score(*pair) for pair in pairs]
        if measure is table.measures[0]:
            ours = [_state(row) or cell for row, cell in zip(rows, ours, strict=True)]
        yield Column("", ours, group, "ours")
        if has_paper:
            yield Column("paper", [paper_score(score) for score in scores], group, "theirs")
        if has_differences:
            yield Column("Δ", [_difference(*pair) for pair in pairs], group)
        if has_differences and has_paper:
            yield Column("Δ paper", [_paper_difference(*pair) for pair in pairs], group, "theirs")
    for name, (title, digits) in _OTHER_SCORES.items():
        if any(name in row.means for row in rows):
            yield Column(title, [mean(row.means.get(name), digits) for row in rows], optional=1)


def our_score(score: Score, row: RowNumbers) -> str:
    """Our mean with its spread."""
    return "" if row.is_published else mean(score.ours, score.measure.digits)


def paper_score(score: Score) -> str:
    """The paper's figure."""
    return formats.number(score.paper, score.measure.paper_digits)


def _difference(score: Score, row: RowNumbers) -> str:
    if row.is_base or not row.is_of_same_text:
        return ""
    found = score.difference
    text = formats.difference(found.mean if found else None, score.measure.digits)
    return text + NOISE if found and found.within_noise else text


def _paper_difference(score: Score, row: RowNumbers) -> str:
    if row.is_base or not row.is_of_same_text:
        return ""
    return formats.difference(score.paper_difference, score.measure.paper_digits)


def _sizes(rows: Sequence[RowNumbers]) -> Iterator[Column]:
    """FLOPs by the model's products, those by time and nominal peak as in the paper, parameters."""
    reported = [row.reported for row in rows]
    if any(paper.flops is not None for paper in reported):
        nominal = [flops(x.flops_nominal for x in row.results) for row in rows]
        yield Column("", [flops(x.flops for x in row.results) for row in rows], "FLOPs", "ours")
        yield Column("nominal", nominal, "FLOPs")
        yield Column("paper", [flops([paper.flops]) for paper in reported], "FLOPs", "theirs")
    yield Column("", [our_parameters(row) for row in rows], "params (M)", "ours", only="page")
    if any(paper.parameters_millions for paper in reported):
        cells = [str(paper.parameters_millions or "") for paper in reported]
        yield Column("paper", cells, "params (M)", "theirs", only="page")


def our_parameters(row: RowNumbers) -> str:
    """The parameters of our model in millions."""
    if row.is_published:
        return ""
    return formats.millions(row.results[0].parameters) if row.results else formats.MISSING


def _with_baseline(columns: Sequence[Column], result: Result) -> list[Column]:
    """Add a row with the F1 of trees that branch to the right, the same for all runs."""
    cells = dict.fromkeys(range(len(columns)), "") | {0: "right-branching"}
    for name, parses in (("f1", result.parses), ("test_f1", result.test_parses)):
        for index, column in enumerate(columns):
            if parses and column.style == "ours" and column.group == MEASURES[name].short:
                cells[index] = formats.number(parses.baseline_f1, MEASURES[name].digits)
    return [replace(x, cells=[*x.cells, cells[index]]) for index, x in enumerate(columns)]


def group_starts(table: TableNumbers) -> list[int]:
    """The indices of rows above which the table has a rule: as the paper's, or by language."""
    groups = [
        (
            row.settings["target_language"],
            table.plan.is_compared and not row.is_published and group_of(row.name),
        )
        for row in table.rows
    ]
    return [index for index, (above, own) in enumerate(pairwise(groups), 1) if own != above]


def seeds_grid(table: TableNumbers) -> Grid:
    """Intervals and verdicts of all rows with a result; empty if no row has two."""
    rows = [row for row in table.rows if row.results and table.has_seeds]
    has_others = any(not row.is_base for row in rows)
    last = [(row.scores[table.measures[-1].name], row) for row in rows]
    pairs = [score.ours if row.is_base else score.difference for score, row in last]
    columns = [
        Column("row", [row.name for row in rows]),
        Column("seeds", [str(pair.count if pair else 0) for pair in pairs]),
    ]
    for measure in table.measures:
        scores, group = [row.scores[measure.name] for row in rows], measure.short
        own = [interval(score.ours, measure.digits) for score in scores]
        columns.append(Column("95 %", own, group))
        if has_others:
            differences = [
                "" if row.is_base else interval(score.difference, measure.digits, signed=True)
                for row, score in zip(rows, scores, strict=True)
            ]
            columns.append(Column("Δ, 95 %", differences, group))
            columns.append(Column("verdict", [score.verdict for score in scores], group))
            if table.plan.is_compared:
                columns.append(
                    Column("sign as in paper", [x.agreement or "" for x in scores], group)
                )
            seeds = [needed(x.difference) if x.difference and x.verdict else "" for x in scores]
            columns.append(Column("seeds needed", seeds, group))
    return Grid(columns)


def cost_grid(table: TableNumbers) -> Grid:
    """The cost of each row: means over its runs."""
    rows = [row for row in table.rows if not row.is_published]

    def column(name: str, cell: Callable[[Sequence[Result]], str]) -> Column:
        return Column(name, [cell(x.results) if x.results else formats.MISSING for x in rows])

    of_paper = column("with 40,960 rows", lambda x: formats.millions(x[0].parameters_paper_vocab))
    return Grid(
        [
            Column("row", [row.name for row in rows]),
            Column("seeds", [f"{len(row.results)}/{len(row.seeds)}" for row in rows]),
            column("parameters (M)", lambda x: formats.millions(x[0].parameters)),
            *[of_paper] * table.plan.is_compared,
            column("FLOPs", lambda x: flops(run.flops for run in x)),
            column("tokens/s", lambda x: formats.count(fmean(y.tokens_per_second for y in x))),
            column("training", lambda x: formats.duration(fmean(y.train_seconds for y in x))),
        ]
    )
