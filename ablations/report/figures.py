"""The figures of a table's report, from its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from ablations.figures.curves import draw_curves, group_of, mean_curve, read_curve
from ablations.figures.table import draw_against, draw_agreement, draw_seeds
from ablations.report.layout import Figure
from ablations.report.numbers import RowNumbers, TableNumbers
from ablations.runner.attempts import locate
from ablations.tables.table import Cell
from experiments.figures.style import Record
from experiments.run.measures import Measure

_SIZES = {
    "parameters": ("parameters", "Perplexity of each row against the parameters of its model."),
    "flops": ("training FLOPs", "Perplexity of each row against the arithmetic of its training."),
}


def table_figures(table: TableNumbers) -> Iterator[Figure]:
    """All figures for which there are enough values."""
    yield from (figure for measure in table.measures for figure in _agreement(table, measure))
    if table.has_seeds:
        yield from (_seeds(table, measure) for measure in table.measures)
    yield from _curves(table)
    yield from _sizes(table)


def _agreement(table: TableNumbers, measure: Measure) -> Iterator[Figure]:
    """Our differences from the base against the paper's."""
    bounds = ", with 95 % intervals" if table.has_seeds else ""
    records: list[Record] = []
    for row in table.rows:
        score = row.scores[measure.name]
        ours, paper = score.difference, score.paper_difference
        if ours is not None and paper is not None and math.isfinite(ours.mean):
            low, high = ours.interval or (None, None)
            record = {"row": row.name, "paper": round(paper, 6), "ours": ours.mean}
            records.append({**record, "low": low, "high": high, "agreement": score.agreement})
    if records:
        yield Figure(
            name=f"agreement-{measure.name}",
            spec=draw_agreement(records, measure.title),
            caption=f"{measure.title}: each row's difference from the base, the paper's from left "
            f"to right and ours upwards{bounds}, on scales that are logarithmic but near 0. "
            "Rows in the lower left and upper right quarters change in the same direction.",
        )


def _seeds(table: TableNumbers, measure: Measure) -> Figure:
    """The scores of each seed."""
    runs = [
        {"row": row.name, "seed": result.seed, "value": value, "is_base": row.is_base}
        for row in table.rows
        for result in row.results
        if math.isfinite(value := float(getattr(result, measure.name) or math.nan))
    ]
    return Figure(
        name=f"seeds-{measure.name}",
        spec=draw_seeds(runs, measure.title),
        caption=f"{measure.title} of each seed as a point, of each row's mean as a tick; the "
        "dashed line is the base's mean.",
    )


def _curves(table: TableNumbers) -> Iterator[Figure]:
    """Learning curves of all rows that have been validated, finished or not."""
    curves = [
        mean_curve([read_curve(locate(x.directory(table.directory)), x.row, x.seed) for x in cells])
        for row in table.rows
        if (cells := [Cell(row.name, seed) for seed in row.seeds])
    ]
    spec = draw_curves(curves, table.base and table.base.name, by_name=table.plan.is_compared)
    if spec is not None:
        yield Figure(
            name="curves",
            spec=spec,
            caption="Perplexity on the validation set during training: a panel for each group of "
            "rows, a line for each row (the mean of its seeds), the base in grey.",
        )


def _sizes(table: TableNumbers) -> Iterator[Figure]:
    """Perplexity against parameters and against FLOPs, and BLEU against FLOPs."""
    for field, (title, caption) in _SIZES.items():
        records = [
            {
                "row": row.name,
                "group": _group(table, row),
                "perplexity": perplexity.mean,
                field: fmean(float(getattr(result, field)) for result in row.results),
            }
            for row in table.rows
            if (perplexity := row.means.get("perplexity")) and math.isfinite(perplexity.mean)
        ]
        if len(records) > 1:
            spec = draw_against(records, field, title, "perplexity", "Perplexity", log=True)
            yield Figure(name=f"perplexity-{field}", spec=spec, caption=caption)
    records = [record for row in table.rows for record in _bleu_and_flops(row)]
    if records:
        label = "BLEU of the test set"
        yield Figure(
            name="bleu-flops",
            spec=draw_against(records, "flops", "training FLOPs", "test_bleu", label, log=False),
            caption=f"{label} against training FLOPs: ours by the arithmetic of the model, the "
            "paper's by time and nominal peak of the devices.",
        )


def _group(table: TableNumbers, row: RowNumbers) -> str:
    if table.plan.is_compared:
        return group_of(row.name)
    return "base" if row.is_base else "rows"


def _bleu_and_flops(row: RowNumbers) -> Iterator[Record]:
    """The paper's point of a row of Table 2, and ours."""
    paper, ours = row.reported, row.means.get("test_bleu")
    language = row.settings["target_language"]
    if paper.flops is None:
        return
    point = {"row": row.name, "group": f"paper, {language}", "flops": paper.flops}
    if paper.test_bleu is not None:
        yield {**point, "test_bleu": paper.test_bleu}
    if ours is not None:
        flops = fmean(result.flops for result in row.results)
        yield {**point, "group": f"ours, {language}", "flops": flops, "test_bleu": ours.mean}
