"""What a row of the report opens to: its configuration, runs, files, translations, and a log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ablations.report.page import Column, Facts, Links, Log, Section, Table, make_sections
from ablations.report.summary import RowSummary, Summary
from ablations.runs.attempts import locate
from ablations.runs.process import LOG_FILE, last_log_lines
from ablations.tables.changes import COLUMNS, Value
from ablations.tables.table import Cell
from experiments.run.experiment import CONFIG_FILE
from experiments.run.measures import MEASURES, Measure
from experiments.run.results import (
    METRICS_FILE,
    RESULT_FILE,
    Result,
    hypotheses_path,
    read_samples,
)
from transformer import formats
from transformer.errors import InputError
from transformer.variant import class_name

_LOG_LINES = 15
_FILES = (CONFIG_FILE, RESULT_FILE, METRICS_FILE, hypotheses_path(Path(), "valid").name, LOG_FILE)


def details(summary: Summary, row: RowSummary) -> tuple[Section, ...]:
    """The sections under a row; of several seeds, translations and log are the first one's."""
    if row.row.published:
        return ()
    seeds = row.row.seeds
    paths = [locate(Cell(row.row.name, seed).directory(summary.directory)) for seed in seeds]
    first = f"seed {seeds[0]}"
    return make_sections(
        ("Configuration", [Facts(tuple(_configuration(summary, row)))]),
        ("Runs", [_runs(row), Links(tuple(x for path in paths for x in _links(summary, path)))]),
        (f"Validation set, best and worst translations by chrF, {first}", [_samples(paths[0])]),
        (f"End of the log, {first}", [Log(tuple(last_log_lines(paths[0], _LOG_LINES)))]),
    )


def label(name: str) -> str:
    """What the table calls a setting: as Table 3 does, if it has it."""
    return COLUMNS.get(name, name.replace("_", " "))


def setting(name: str, value: Value) -> str:
    """The value of a setting as the table shows it."""
    if isinstance(value, int) and name == "max_steps":
        return formats.steps(value)
    if name == "model":
        return class_name(str(value)) if value else "the paper's"
    if isinstance(value, float):
        return str(float(f"{value:.4g}"))
    return "none" if value is None else str(value)


def _configuration(summary: Summary, row: RowSummary) -> list[tuple[str, str]]:
    base = summary.base.settings if summary.base else row.settings
    return [
        (label(name), ours if ours == theirs else f"{ours} (base: {theirs})")
        for name in summary.plan.shown
        for ours, theirs in [(setting(name, row.settings[name]), setting(name, base[name]))]
    ]


def _runs(row: RowSummary) -> Table:
    measures = [x for x in MEASURES.values() if x.name in row.scores]
    heads = ["seed", *(x.short for x in measures), "steps", "target tokens"]
    heads += ["FLOPs", "training", "device", "commit"]
    finished = [(result.seed, _run(result, measures)) for result in row.results]
    missing = [
        (run.cell.seed, (str(run.cell.seed), str(run), *[""] * (len(heads) - 2)))
        for run in row.unfinished
    ]
    rows = tuple(cells for _, cells in sorted(finished + missing))
    return Table(columns=tuple(Column(head) for head in heads), rows=rows)


def _run(result: Result, measures: Sequence[Measure]) -> tuple[str, ...]:
    flops = f"{result.flops:.2g}".replace("e+", "e")
    return (
        str(result.seed),
        *(formats.number(getattr(result, x.name), max(2, x.digits)) for x in measures),
        formats.steps(result.steps),
        formats.count(result.target_tokens),
        flops,
        formats.duration(result.train_seconds),
        result.device,
        result.commit[:10],
    )


def _links(summary: Summary, path: Path) -> list[tuple[str, str]]:
    where = path.relative_to(summary.directory).as_posix()
    return [(f"{where}/{name}", f"{where}/{name}") for name in _FILES if (path / name).is_file()]


def _samples(path: Path) -> Table:
    try:
        samples = read_samples(path, "valid")
    except InputError:  # such as one that a full disk cut off; the figures do not depend on it
        samples = []
    heads = ("chrF", "source", "reference", "translation")
    return Table(
        columns=tuple(Column(head, style="" if head == "chrF" else "prose") for head in heads),
        rows=tuple((f"{x.chrf:.1f}", x.source, x.reference, x.translation) for x in samples),
    )
