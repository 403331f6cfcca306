"""The figures of a table's report: which values of the summary they show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from ablations.figures.curves import Curve, draw_curves, group_of, mean_curve, read_curve
from ablations.figures.table import draw_against, draw_agreement, draw_seeds
from ablations.report.page import Figure
from ablations.report.summary import RowSummary, Summary
from ablations.report.verdicts import agreement, seeds_table
from ablations.runs.attempts import locate
from ablations.tables.table import Cell
from experiments.figures.style import Record

_SIZES = {
    "parameters": ("parameters", "Perplexity of each row against the parameters of its model."),
    "flops": ("training FLOPs", "Perplexity of each row against the arithmetic of its training."),
}


def agreement_figures(summary: Summary) -> Iterator[Figure]:
    """Our differences from the base against the paper's, by each measure."""
    bounds = ", with 95 % intervals" if seeds_table(summary).rows else ""
    for measure in summary.measures:
        name, label = measure.name, measure.title
        rows = [x for x in (_compared(summary, row, name) for row in summary.rows) if x]
        if rows:
            yield Figure(
                name=f"agreement-{name}",
                spec=draw_agreement(rows, label),
                caption=f"{label}: each row's difference from the base, the paper's from left to "
                f"right and ours upwards{bounds}, on scales that are logarithmic but near 0. "
                "Rows in the lower left and upper right quarters change in the same direction.",
            )


def _compared(summary: Summary, row: RowSummary, name: str) -> Record | None:
    paper, ours = summary.reported_difference(row, name), summary.difference(row, name)
    if row.is_base or paper is None or ours is None or not math.isfinite(ours.mean):
        return None
    low, high = ours.interval or (None, None)
    return {
        "row": row.row.name,
        "paper": round(paper, 6),
        "ours": ours.mean,
        "low": low,
        "high": high,
        "agreement": agreement(summary, row, name),
    }


def curve_figures(summary: Summary) -> Iterator[Figure]:
    """Learning curves of all rows that have been validated, finished or not."""
    curves = [
        mean_curve([_curve(summary, row.row.name, seed) for seed in row.row.seeds])
        for row in summary.rows
        if row.row.seeds
    ]
    base = summary.base.row.name if summary.base else None
    spec = draw_curves(curves, base, by_name=summary.plan.is_compared)
    if spec is not None:
        yield Figure(
            name="curves",
            spec=spec,
            caption="Perplexity on the validation set during training: "
            f"{'a panel for each group of rows, ' * summary.plan.is_compared}a line for each row "
            "(the mean of its seeds), the base in grey.",
        )


def _curve(summary: Summary, row: str, seed: int) -> Curve:
    return read_curve(locate(Cell(row, seed).directory(summary.directory)), row, seed)


def size_figures(summary: Summary) -> Iterator[Figure]:
    """Perplexity against parameters, and against FLOPs."""
    for field, (title, caption) in _SIZES.items():
        rows = [
            {
                "row": row.row.name,
                "group": _group(summary, row),
                "perplexity": perplexity.mean,
                field: fmean(float(getattr(result, field)) for result in row.results),
            }
            for row in summary.rows
            if (perplexity := row.scores.get("perplexity")) and math.isfinite(perplexity.mean)
        ]
        if len(rows) > 1:
            spec = draw_against(rows, field, title, "perplexity", "Perplexity", log=True)
            yield Figure(name=f"perplexity-{field}", spec=spec, caption=caption)
    rows = [x for row in summary.rows for x in _bleu_and_flops(row)]
    if rows:
        spec = draw_against(
            rows, "flops", "training FLOPs", "test_bleu", "BLEU of the test set", log=False
        )
        yield Figure(
            name="bleu-flops",
            spec=spec,
            caption="BLEU of the test set against training FLOPs: ours by the arithmetic of the "
            "model, the paper's by time and nominal peak of the devices.",
        )


def _group(summary: Summary, row: RowSummary) -> str:
    if summary.plan.is_compared:
        return group_of(row.row.name)
    return "base" if row.is_base else "rows"


def _bleu_and_flops(row: RowSummary) -> Iterator[Record]:
    """The paper's point of a row of Table 2, and ours."""
    paper, ours = row.row.reported, row.scores.get("test_bleu")
    language = row.settings["target_language"]
    if paper.flops is None:
        return
    if paper.test_bleu is not None:
        yield {
            "row": row.row.name,
            "group": f"paper, {language}",
            "flops": paper.flops,
            "test_bleu": paper.test_bleu,
        }
    if ours is not None:
        yield {
            "row": row.row.name,
            "group": f"ours, {language}",
            "flops": fmean(result.flops for result in row.results),
            "test_bleu": ours.mean,
        }


def seed_figures(summary: Summary) -> Iterator[Figure]:
    """The scores of each seed, if a row has several."""
    if all(len(row.results) < 2 for row in summary.rows):
        return
    for measure in summary.measures:
        name, label = measure.name, measure.title
        runs = [
            {"row": row.row.name, "seed": result.seed, "value": value, "is_base": row.is_base}
            for row in summary.rows
            for result in row.results
            if math.isfinite(value := float(getattr(result, name) or math.nan))
        ]
        yield Figure(
            name=f"seeds-{name}",
            spec=draw_seeds(runs, label),
            caption=f"{label} of each seed as a point, of each row's mean as a tick; the dashed "
            "line is the base's mean.",
        )
