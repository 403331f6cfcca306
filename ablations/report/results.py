"""The results of a table, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ablations.figures.curves import group_of
from ablations.files import PLAN_FILE
from ablations.folder import TableFolder
from ablations.report.grid import Column, Grid
from ablations.report.numbers import OTHER_SCORES, RowNumbers, TableNumbers
from ablations.report.scores import Score
from ablations.report.speed_up import SPEED_MEASURE
from ablations.report.statistics import Estimate
from ablations.tables.changes import COLUMNS, Value, is_option
from ablations.tables.plan import load_plan
from experiments.records.experiment import CONFIG_FILE
from experiments.records.outputs import METRICS_FILE, hypotheses_path
from experiments.records.progress import FINAL, RunState
from experiments.records.result import MEASURES, RESULT_FILE, Measure
from experiments.records.run import LOG_FILE, Run
from transformer import formats
from transformer.config import OPTIONS_OF
from transformer.errors import InputError
from transformer.variant import class_name

NOISE = "~"  # marks a difference that is within noise
SAME = "="  # replaces a difference that is 0 by construction
_LOG_LINES = 15
_FILES = (CONFIG_FILE, RESULT_FILE, METRICS_FILE, hypotheses_path(Path(), "valid").name, LOG_FILE)


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
    details = [_details(table, row, page) for row in rows]
    return Grid(filled(columns), row_styles=_row_styles(table), name="rows", details=details)


def _own_setting(row: RowNumbers, name: str) -> str:
    """A setting of the base, or one that the row changes; empty for other settings."""
    if name not in row.settings or not (row.is_base or name in row.changed):
        return ""
    return setting(name, row.settings[name])


def filled(columns: Sequence[Column]) -> list[Column]:
    """The columns that have a value in some row."""
    blank = {"", formats.MISSING}
    return [column for column in columns if not blank.issuperset(column.cells)]


def _row_styles(table: TableNumbers) -> list[str]:
    """The CSS class of each row: whether it is unfinished, and whether a group begins."""
    styles: list[str] = []
    above = None
    for row in table.rows:
        style = _state(row)
        if style and style != "failed":
            style = "unfinished"
        letter = group_of(row.name) if table.plan.is_compared and not row.is_published else ""
        group = row.settings["target_language"], letter
        if styles and group != above:
            style += " group-start"
        styles.append(style)
        above = group
    return styles


def label(name: str) -> str:
    """The name of a setting in the table: Table 3's symbol if it has one; options keep theirs."""
    if is_option(name):
        return name
    return COLUMNS.get(name, name.replace("_", " "))


def setting(name: str, value: Value) -> str:
    """The value of a setting, in words."""
    if isinstance(value, int) and name == "max_steps":
        return formats.steps(value)
    if name in OPTIONS_OF:
        return class_name(str(value)) if value else "the paper's"
    if isinstance(value, float):
        return str(float(f"{value:.4g}"))
    return "none" if value is None else str(value)


def _scores(table: TableNumbers, measure: Measure) -> list[Column]:
    """Our scores and the paper's, with differences where rows have the base's text."""
    ours, paper, differences, of_paper = [], [], [], []
    for row in table.rows:
        score = row.scores[measure.name]
        state = _state(row) if measure is table.measures[0] else ""
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


def problems(table: TableNumbers, folder: TableFolder) -> Iterator[str]:
    """Each run without a result and why, and each row or run that is left out."""
    for row in table.rows:
        for run in row.unfinished:
            yield f"{row.name}, seed {run.seed}: {_describe_state(run)}"
    for row in load_plan(folder.path).rows:
        if row.name not in [each.name for each in folder.plan.rows]:
            yield f"{row.name}: left out of this report by --rows or --without"
    for name in folder.unplanned:
        yield f"{name}: left out, as {PLAN_FILE} does not list it"


def _state(row: RowNumbers) -> str:
    """The state of a row without a result, if possible of a failed run; empty for other rows."""
    if row.results or not row.unfinished:
        return ""
    states = [_state_of(run) for run in row.unfinished]
    failed = [state for state, reason in states if reason]
    begun = [state for state, _ in states if state != "missing"]
    return (failed or begun or ["missing"])[0]


def _state_of(run: Run) -> tuple[str, str]:
    """How far a run without a result has got, and why it failed or is left out."""
    progress = run.progress
    if run.problem:
        return "stale" if run.state == RunState.STALE else "left out", run.problem
    if progress is None:
        return "missing", ""
    if progress.stage in (RunState.TRAIN, RunState.STOPPED):
        return f"step {progress.step:,} of {progress.max_steps:,}", ""
    if progress.stage == RunState.DONE or progress.stage not in FINAL:
        return str(progress.stage), ""
    return str(progress.stage), progress.message or "no reason recorded"


def _describe_state(run: Run) -> str:
    state, reason = _state_of(run)
    return f"{state} ({reason})" if reason else state


def _details(table: TableNumbers, row: RowNumbers, page: Path) -> dict[str, object]:
    """The values for the template of a row's details; empty for a published system.

    Translations and log are those of the ``first_seed``.
    """
    if row.is_published:
        return {}
    base = table.base or row
    configuration: list[tuple[str, str]] = []
    for name in table.shown:
        if name not in row.settings:  # it is an option of another row's class
            continue
        ours = setting(name, row.settings[name])
        theirs = setting(name, base.settings[name]) if name in base.settings else ours
        words = ours if ours == theirs else f"{ours} (base: {theirs})"
        configuration.append((label(name), words))
    paths = [run.directory / name for run in row.runs for name in _FILES]
    return {
        "configuration": configuration,
        "runs": _runs(row, table),
        "files": [path.relative_to(page).as_posix() for path in paths if path.is_file()],
        "first_seed": row.seeds[0],
        "samples": _samples(row.runs[0]),
        "log": row.runs[0].log(_LOG_LINES),
    }


def _runs(row: RowNumbers, table: TableNumbers) -> Grid:
    known = (*MEASURES.values(), *(measure for measure in table.measures if measure.key))
    measures = [measure for measure in known if measure.name in row.means]
    heads = ["seed", *(measure.short for measure in measures), "steps", "target tokens"]
    heads += ["FLOPs", "training", "device", "commit"]
    lines: list[list[str]] = []
    for run in sorted(row.runs, key=lambda run: run.seed or 0):
        result = run.result
        if result is None:
            cells = [_describe_state(run), *[""] * (len(heads) - 2)]
        else:
            scores = [
                formats.number(measure.of(result), max(2, measure.digits)) for measure in measures
            ]
            cells = [
                *scores,
                formats.steps(result.steps),
                formats.count(result.target_tokens),
                formats.flops(result.flops),
                formats.duration(result.train_seconds),
                result.device,
                result.commit[:10],
            ]
        lines.append([str(run.seed), *cells])
    return Grid.of(heads, lines)


def _samples(run: Run) -> Grid:
    try:
        samples = run.samples
    except InputError:  # such as a file that a full disk cut off; the scores do not depend on it
        samples = []
    return Grid(
        [
            Column("chrF", [f"{sample.chrf:.1f}" for sample in samples]),
            Column("source", [sample.source for sample in samples], style="prose"),
            Column("reference", [sample.reference for sample in samples], style="prose"),
            Column("translation", [sample.translation for sample in samples], style="prose"),
        ]
    )
