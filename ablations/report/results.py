"""The results of a table, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ablations.figures.curves import group_of
from ablations.report.facts import label, setting
from ablations.report.grid import Column, Grid, filled
from ablations.report.runs import row_details, state_of_row
from ablations.report.scores import Score
from ablations.report.speed_up import SPEED_MEASURE
from ablations.report.statistics import Estimate
from ablations.report.table_numbers import OTHER_SCORES, RowNumbers, TableNumbers
from experiments.records.result import MEASURES, Measure
from transformer import formats

NOISE = "~"  # marks a difference that is within noise
SAME = "="  # replaces a difference that is 0 by construction


def results_grid(table: TableNumbers, page: Path) -> Grid:
    """Settings, scores and sizes of all rows; rows without a result show their state.

    Args:
        page: the directory of the page that shows the grid, to which links to files are relative
    """
    rows = table.rows
    columns = [Column("row", [row.name for row in rows])]
    for name in table.settings:
        cells = [_own_setting(row, name) for row in rows]
        columns.append(Column(label(name), cells, style="setting", optional=2))
    for measure in table.measures:
        columns += _scores(table, measure)
    for measure in (MEASURES["chrf"], MEASURES["test_chrf"]):
        if measure not in table.measures:
            cells = [_mean(row.means.get(measure.name), measure.digits) for row in rows]
            columns.append(Column("", cells, measure.short, "ours", optional=1))
    for name, (title, digits) in OTHER_SCORES.items():
        cells = [_mean(row.means.get(name), digits) for row in rows]
        columns.append(Column(title, cells, optional=1))
    columns += _sizes(rows)
    references = [row.reference for row in rows]
    columns.append(Column("reference", references, style="theirs words", optional=1))
    details = [row_details(table, row, page) for row in rows]
    return Grid(filled(columns), row_styles=_row_styles(table), name="rows", details=details)


def _own_setting(row: RowNumbers, name: str) -> str:
    """A setting of the base, or one that the row changes; empty for other settings."""
    if name not in row.settings or not (row.is_base or name in row.changed):
        return ""
    return setting(name, row.settings[name])


def _row_styles(table: TableNumbers) -> list[str]:
    """The CSS classes of each row: whether it failed or is unfinished, and begins a group."""
    styles: list[str] = []
    above = None
    for row in table.rows:
        style = state_of_row(row)
        if style and style != "failed":
            style = "unfinished"
        letter = group_of(row.name) if table.plan.is_compared and not row.is_published else ""
        group = row.settings["target_language"], letter
        if styles and group != above:
            style += " group-start"
        styles.append(style)
        above = group
    return styles


def _scores(table: TableNumbers, measure: Measure) -> list[Column]:
    """Our scores and the paper's, with differences where rows have the base's text."""
    ours, paper, differences, of_paper = [], [], [], []
    for row in table.rows:
        score = row.scores[measure.name]
        state = state_of_row(row) if measure is table.measures[0] else ""
        ours.append("" if row.is_published else state or _mean(score.ours, measure.digits))
        paper.append(formats.number(score.paper, measure.paper_digits))
        is_compared = row.is_of_same_text and not row.is_base
        change = formats.difference(score.paper_difference, measure.paper_digits)
        differences.append(difference(score) if is_compared else "")
        of_paper.append(change if is_compared else "")
    return [
        Column("", ours, measure.short, "ours"),
        Column("paper", paper, measure.short, "theirs"),
        Column("Δ", differences, measure.short),
        Column("Δ paper", of_paper, measure.short, "theirs"),
        *_speed_ups(table, measure),
    ]


def difference(score: Score) -> str:
    """The difference from the base, marked if it is within noise or 0 by construction."""
    if score.is_equal:
        return SAME
    found = score.difference
    text = formats.difference(found and found.mean, score.measure.digits)
    return f"{text}{NOISE}" if found and found.within_noise else text


def _speed_ups(table: TableNumbers, measure: Measure) -> Iterator[Column]:
    """How many of the base's steps a row's step is worth, in steps and in time."""
    if measure.name != SPEED_MEASURE:
        return
    cells: list[str] = []
    for row in table.rows:
        speed, difference = table.speed_ups.get(row.name), row.scores[measure.name].difference
        text = "" if speed is None else str(speed.mean)
        if speed and difference and difference.within_noise:
            text += NOISE
        cells.append(text)
    yield Column("speed-up", cells, measure.short, optional=1)
    in_time = [table.speed_up_in_time(row.name) for row in table.rows]
    times = ["" if speed is None else str(speed) for speed in in_time]
    yield Column("in time", times, measure.short, optional=1)


def _mean(value: Estimate | None, digits: int) -> str:
    """A mean with its standard deviation, if there is one: ``82.1 ± 0.3``."""
    if value is None:
        return formats.MISSING
    mean = formats.number(value.mean, digits)
    if value.deviation is None:
        return mean
    return f"{mean} ± {formats.number(value.deviation, digits)}"


def _sizes(rows: Sequence[RowNumbers]) -> Iterator[Column]:
    """FLOPs by the model's matmuls, FLOPs by time and nominal peak as in the paper, parameters."""
    if any(row.reported.flops is not None for row in rows):
        ours, nominal, paper = [], [], []
        for row in rows:
            counted, timed = row.means.get("flops"), row.means.get("flops_nominal")
            ours.append(formats.flops(counted.mean if counted else None))
            nominal.append(formats.flops(timed.mean if timed else None))
            paper.append(formats.flops(row.reported.flops))
        yield Column("", ours, "FLOPs", "ours")
        yield Column("nominal", nominal, "FLOPs")
        yield Column("paper", paper, "FLOPs", "theirs")
    parameters: list[str] = []
    for row in rows:
        if row.results:
            parameters.append(formats.millions(row.results[0].parameters))
        else:
            parameters.append("" if row.is_published else formats.MISSING)
    theirs = [str(row.reported.parameters_millions or "") for row in rows]
    yield Column("", parameters, "params (M)", "ours", optional=2)
    yield Column("paper", theirs, "params (M)", "theirs", optional=2)
