"""States of a table's runs, and details of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ablations.files import PLAN_FILE
from ablations.folder import TableFolder
from ablations.report.facts import label, setting
from ablations.report.grid import Column, Grid
from ablations.report.table_numbers import RowNumbers, TableNumbers
from ablations.tables.plan_file import load_plan
from experiments.records.experiment import CONFIG_FILE
from experiments.records.outputs import METRICS_FILE, hypotheses_path
from experiments.records.progress import FINAL, RunState
from experiments.records.result import MEASURES, RESULT_FILE
from experiments.records.run import LOG_FILE, Run
from transformer import formats
from transformer.errors import InputError

_LOG_LINES = 15
_FILES = (CONFIG_FILE, RESULT_FILE, METRICS_FILE, hypotheses_path(Path(), "valid").name, LOG_FILE)


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


def state_of_row(row: RowNumbers) -> str:
    """The state of a row that has no result, by a failed run if there is one; else empty."""
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


def row_details(table: TableNumbers, row: RowNumbers, page: Path) -> dict[str, object]:
    """The values for the template of a row's details; empty for a published system.

    Files are relative to the directory ``page``. Translations and log are of the ``first_seed``.
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
