"""Grids of a table's report and of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from ablations.figures.curves import group_of
from ablations.report.layout import Column, Grid
from ablations.report.numbers import (
    OTHER_SCORES,
    RowNumbers,
    TableNumbers,
    describe_state,
    state_of,
)
from ablations.report.sentences import flops, interval, label, needed, setting
from ablations.report.statistics import Estimate
from experiments.records.experiment import CONFIG_FILE
from experiments.records.outputs import METRICS_FILE, hypotheses_path
from experiments.records.result import MEASURES, RESULT_FILE, Measure
from experiments.records.run import LOG_FILE, Run
from transformer import formats
from transformer.errors import InputError

NOISE = "~"  # marks a difference that is within noise
_LOG_LINES = 15
_FILES = (CONFIG_FILE, RESULT_FILE, METRICS_FILE, hypotheses_path(Path(), "valid").name, LOG_FILE)


def results_grid(table: TableNumbers, page: Path) -> Grid:
    """Settings, scores and sizes of all rows; the state of those without a result.

    Args:
        page: the directory of the page that shows it, from which files are linked
    """
    rows = table.rows
    columns = [Column("row", [row.name for row in rows])]
    for name in table.settings:
        cells = [
            setting(name, row.settings[name]) if row.is_base or name in row.changed else ""
            for row in rows
        ]
        columns.append(Column(label(name), cells, style="setting", optional=2))
    for measure in table.measures:
        columns += _score_columns(table, measure)
    for name, (title, digits) in OTHER_SCORES.items():
        cells = [mean(row.means.get(name), digits) for row in rows]
        columns.append(Column(title, cells, optional=1))
    columns += _sizes(rows)
    references = [row.reference for row in rows]
    columns.append(Column("reference", references, style="theirs words", optional=1))
    styles = [
        "unfinished" if (state := _state(row)) and state != "failed" else state for row in rows
    ]
    groups = [
        (
            row.settings["target_language"],
            table.plan.is_compared and not row.is_published and group_of(row.name),
        )
        for row in rows
    ]
    for index, (above, own) in enumerate(pairwise(groups), start=1):
        styles[index] += " group-start" * (own != above)
    details = [_details(table, row, page) for row in rows]
    return Grid(_filled(columns), row_styles=styles, name="rows", details=details)


def _filled(columns: Sequence[Column]) -> list[Column]:
    """The columns that have a value in some row."""
    return [x for x in columns if any(cell not in ("", formats.MISSING) for cell in x.cells)]


def _state(row: RowNumbers) -> str:
    """The state of a row without a result, that of a failed run first; empty for others."""
    if row.results or not row.unfinished:
        return ""
    states = map(state_of, row.unfinished)
    return max(states, key=lambda pair: (bool(pair[1]), pair[0] != "missing"))[0]


def _score_columns(table: TableNumbers, measure: Measure) -> list[Column]:
    """Ours, the paper's, and differences where rows have the same text."""
    ours, paper, differences, of_paper = [], [], [], []
    for row in table.rows:
        score = row.scores[measure.name]
        state = _state(row) if measure is table.measures[0] else ""
        ours.append("" if row.is_published else state or mean(score.ours, measure.digits))
        paper.append(formats.number(score.paper, measure.paper_digits))
        found, is_compared = score.difference, row.is_of_same_text and not row.is_base
        change = formats.difference(found and found.mean, measure.digits)
        noise = NOISE if found and found.within_noise else ""
        differences.append(f"{change}{noise}" if is_compared else "")
        change = formats.difference(score.paper_difference, measure.paper_digits)
        of_paper.append(change if is_compared else "")
    return [
        Column("", ours, measure.short, "ours"),
        Column("paper", paper, measure.short, "theirs"),
        Column("Δ", differences, measure.short),
        Column("Δ paper", of_paper, measure.short, "theirs"),
    ]


def mean(value: Estimate | None, digits: int) -> str:
    """A mean with its standard deviation, if there is one: ``82.1 ± 0.3``."""
    text = formats.number(value.mean if value else None, digits)
    if value is None or value.deviation is None:
        return text
    return f"{text} ± {formats.number(value.deviation, digits)}"


def _sizes(rows: Sequence[RowNumbers]) -> Iterator[Column]:
    """FLOPs by the model's products, those by time and nominal peak as in the paper, parameters."""
    reported = [row.reported for row in rows]
    if any(paper.flops is not None for paper in reported):
        nominal = [flops(x.flops_nominal for x in row.results) for row in rows]
        yield Column("", [flops(x.flops for x in row.results) for row in rows], "FLOPs", "ours")
        yield Column("nominal", nominal, "FLOPs")
        yield Column("paper", [flops([paper.flops]) for paper in reported], "FLOPs", "theirs")
    missing = ["" if row.is_published else formats.MISSING for row in rows]
    ours = [
        formats.millions(row.results[0].parameters) if row.results else blank
        for row, blank in zip(rows, missing, strict=True)
    ]
    theirs = [str(paper.parameters_millions or "") for paper in reported]
    yield Column("", ours, "params (M)", "ours", optional=2)
    yield Column("paper", theirs, "params (M)", "theirs", optional=2)


def seeds_grid(table: TableNumbers) -> Grid:
    """Intervals and verdicts of all rows with a result; empty if no row has two."""
    rows = [row for row in table.rows if row.results and table.has_seeds]
    last = [row.scores[table.measures[-1].name] for row in rows]
    pairs = [score.difference or score.ours for score in last]
    columns = [
        Column("row", [row.name for row in rows]),
        Column("seeds", [str(pair.count if pair else 0) for pair in pairs]),
    ]
    for measure in table.measures:
        scores, group = [row.scores[measure.name] for row in rows], measure.short
        differences = [
            "" if row.is_base else interval(score.difference, measure.digits, signed=True)
            for row, score in zip(rows, scores, strict=True)
        ]
        seeds = [needed(x.difference) if x.difference and x.verdict else "" for x in scores]
        columns += [
            Column("95 %", [interval(score.ours, measure.digits) for score in scores], group),
            Column("Δ, 95 %", differences, group),
            Column("verdict", [score.verdict for score in scores], group),
            Column("sign as in paper", [score.agreement for score in scores], group),
            Column("seeds needed", seeds, group),
        ]
    return Grid(_filled(columns))


def cost_grid(table: TableNumbers) -> Grid:
    """The cost of each row: means over its runs."""
    of_paper = "with 40,960 rows"
    heads = ("row", "seeds", "parameters (M)", of_paper, "FLOPs", "tokens/s", "training")
    lines: list[list[str]] = []
    for row in (row for row in table.rows if not row.is_published):
        lines.append([row.name, f"{len(row.results)}/{len(row.seeds)}"])
        if not row.results:
            lines[-1] += [formats.MISSING] * 5
            continue
        lines[-1] += [
            formats.millions(row.results[0].parameters),
            formats.millions(row.results[0].parameters_paper_vocab),
            flops(run.flops for run in row.results),
            formats.count(fmean(run.tokens_per_second for run in row.results)),
            formats.duration(fmean(run.train_seconds for run in row.results)),
        ]
    columns = Grid.of(heads, lines).columns
    return Grid([x for x in columns if table.plan.is_compared or x.name != of_paper])


def _details(table: TableNumbers, row: RowNumbers, page: Path) -> dict[str, object]:
    """The values of the details' template; empty for a published system.

    Of several seeds, translations and log are those of the ``first_seed``.
    """
    if row.is_published:
        return {}
    paths = [run.directory / name for run in row.runs for name in _FILES]
    base = table.base.settings if table.base else row.settings
    settings = {x: (setting(x, row.settings[x]), setting(x, base[x])) for x in table.shown}
    return {
        "configuration": [
            (label(x), ours if ours == theirs else f"{ours} (base: {theirs})")
            for x, (ours, theirs) in settings.items()
        ],
        "runs": _runs(row),
        "files": [path.relative_to(page).as_posix() for path in paths if path.is_file()],
        "first_seed": row.seeds[0],
        "samples": _samples(row.runs[0]),
        "log": row.runs[0].log(_LOG_LINES),
    }


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
    for run in row.unfinished:
        lines[run.seed or 0] = [describe_state(run), *[""] * (len(heads) - 2)]
    return Grid.of(heads, [[str(seed), *lines[seed]] for seed in sorted(lines)])


def _samples(run: Run) -> Grid:
    try:
        samples = run.samples
    except InputError:  # such as one that a full disk cut off; the figures do not depend on it
        samples = []
    texts = ("source", "reference", "translation")
    columns = [Column(x, [getattr(y, x) for y in samples], style="prose") for x in texts]
    return Grid([Column("chrF", [f"{x.chrf:.1f}" for x in samples]), *columns])
