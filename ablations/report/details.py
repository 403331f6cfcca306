"""Details of one row: configuration, runs, files, translations, log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ablations.report.layout import Column, Grid
from ablations.report.numbers import RowNumbers, TableNumbers
from ablations.report.words import flops, label, setting
from ablations.runs.attempts import locate
from ablations.runs.process import LOG_FILE, last_log_lines
from ablations.tables.table import Cell
from experiments.records.experiment import CONFIG_FILE
from experiments.records.outputs import METRICS_FILE, hypotheses_path, read_samples
from experiments.records.result import MEASURES, RESULT_FILE
from transformer import formats
from transformer.errors import InputError

_LOG_LINES = 15
_FILES = (CONFIG_FILE, RESULT_FILE, METRICS_FILE, hypotheses_path(Path(), "valid").name, LOG_FILE)


def read_details(table: TableNumbers, row: RowNumbers) -> dict[str, object]:
    """The values of the details' template; empty for a published system.

    Of several seeds, translations and log are those of the ``first_seed``.
    """
    if row.is_published:
        return {}
    paths = [locate(Cell(row.name, seed).directory(table.directory)) for seed in row.seeds]
    files = [path / name for path in paths for name in _FILES if (path / name).is_file()]
    return {
        "configuration": list(_configuration(table, row)),
        "runs": _runs(row),
        "files": [file.relative_to(table.directory).as_posix() for file in files],
        "first_seed": row.seeds[0],
        "samples": _samples(paths[0]),
        "log": last_log_lines(paths[0], _LOG_LINES),
    }


def _configuration(table: TableNumbers, row: RowNumbers) -> Iterator[tuple[str, str]]:
    base = table.base.settings if table.base else row.settings
    for name in table.plan.shown:
        ours, theirs = setting(name, row.settings[name]), setting(name, base[name])
        yield label(name), ours if ours == theirs else f"{ours} (base: {theirs})"


def _runs(row: RowNumbers) -> Grid:
    measures = [measure for name, measure in MEASURES.items() if name in row.means]
    heads = ["seed", *(x.short for x in measures), "steps", "target tokens"]
    heads += ["FLOPs", "training", "device", "commit"]
    lines = {
        result.seed: [
            *(formats.number(getattr(result, x.name), max(2, x.digits)) for x in measures),
            formats.steps(result.steps),
            formats.count(result.target_tokens),
            flops([result.flops]),
            formats.duration(result.train_seconds),
            result.device,
            result.commit[:10],
        ]
        for result in row.results
    }
    lines |= {run.cell.seed: [str(run), *[""] * (len(heads) - 2)] for run in row.unfinished}
    return Grid.of(heads, [[str(seed), *lines[seed]] for seed in sorted(lines)])


def _samples(path: Path) -> Grid:
    try:
        samples = read_samples(path, "valid")
    except InputError:  # such as one that a full disk cut off; the figures do not depend on it
        samples = []
    texts = ("source", "reference", "translation")
    columns = [Column(x, [getattr(y, x) for y in samples], style="prose") for x in texts]
    return Grid([Column("chrF", [f"{x.chrf:.1f}" for x in samples]), *columns])
