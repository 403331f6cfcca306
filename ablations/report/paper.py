"""Compare a table with the paper's.

It compares the order of the rows, and the regime in which they were trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

from ablations.report.grid import Grid
from ablations.report.statistics import CONFIDENCE, correlation_interval, rank_correlation
from ablations.report.table_numbers import RowNumbers, TableNumbers, has_same_pieces
from experiments.records.result import Result
from transformer import formats
from transformer.config import Config
from transformer.training.optimizer import learning_rate

_FAR = 3
_NOISE_OF_PAPER = {"bleu": 0.18, "perplexity": 0.003}


def order_of_rows(table: TableNumbers) -> str:
    """A sentence on the rank correlations with the paper; empty without a row in both."""
    known: list[str] = []
    for measure in table.measures:
        ours: list[float] = []
        theirs: list[float] = []
        for row in table.rows:
            score = row.scores[measure.name]
            if score.ours is None or score.paper is None or math.isnan(score.ours.mean):
                continue
            if has_same_pieces(row, measure.name):
                ours.append(score.ours.mean)
                theirs.append(score.paper)
        if ours:
            known.append(f"{measure.label} {_correlation(ours, theirs)}")
    if not known:
        return ""
    return f"Spearman's rank correlation with the paper's rows: {', '.join(known)}."


def _correlation(ours: Sequence[float], theirs: Sequence[float]) -> str:
    rows = "1 row" if len(ours) == 1 else f"{len(ours)} rows"
    value = rank_correlation(ours, theirs)
    if value is None:
        return f"undefined ({rows})"
    ends = correlation_interval(value, len(ours))
    if ends is not None:
        rows += f", 95 % CI {' to '.join(formats.difference(end, 2) for end in ends)}"
    return f"{formats.difference(value, 2)} ({rows})"


def is_clear_in_paper(row: RowNumbers, base: RowNumbers, measure: str) -> bool:
    """Whether the paper reports a difference that two runs of one row, at its size, seldom show.

    For a model between base and big, the standard deviation between runs is 0.18 BLEU on
    newstest2013 (AlgoPerf's public logs, 43 settings with five seeds) and 0.003 in the logarithm of
    perplexity (Ghorbani et al. 2022).
    """
    of_row: float | None = getattr(row.reported, measure, None)
    of_base: float | None = getattr(base.reported, measure, None)
    if of_row is None or of_base is None or measure not in _NOISE_OF_PAPER:
        return False
    difference = math.log(of_row / of_base) if measure == "perplexity" else of_row - of_base
    quantile = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    return abs(difference) > quantile * math.sqrt(2) * _NOISE_OF_PAPER[measure]


class Ratio(NamedTuple):
    """A dimensionless number of our base and of the paper's; ours is None if it is unknown."""

    name: str
    ours: float | None
    paper: float


def regime(config: Config, result: Result, rates: Mapping[int, float]) -> list[Ratio]:
    """Dimensionless numbers of a finished base, ours and the paper's.

    An experiment with the same numbers is in the regime in which the paper compared its rows. The
    paper's are those of its base: 65 M parameters, 100,000 steps of 25,000 target tokens over a
    corpus of about 130 M.

    Args:
        rates: recorded learning rates by step; used where they differ from the configuration's
            schedule, as a method may have its own
    """
    training, parameters = config.training, result.parameters
    warm_up, steps = training.warmup_steps, training.max_steps
    peak, last = (_scheduled(config, step) for step in (min(warm_up, steps), steps))
    if not all(
        math.isclose(rate, _scheduled(config, step), rel_tol=0.01) for step, rate in rates.items()
    ):
        peak, last = max(rates.values()), rates[max(rates)]
        warm_up = min(step for step, rate in rates.items() if rate == peak)
    corpus = result.corpus_target_tokens
    epochs = corpus and result.target_tokens / corpus
    return [
        Ratio("epochs", epochs, 19),
        Ratio("target tokens seen per parameter", result.target_tokens / parameters, 38),
        Ratio("distinct target tokens per parameter", corpus and corpus / parameters, 2),
        Ratio("warm-up share of the steps", warm_up / steps, 0.04),
        Ratio("last learning rate over its peak", peak and last / peak, 0.2),
        Ratio(
            "tokens per batch over tokens in the corpus", epochs and epochs / result.steps, 0.0002
        ),
    ]


def _scheduled(config: Config, step: int) -> float:
    return learning_rate(step, config.model.d_model, config.training)


def regime_grid(ratios: Sequence[Ratio]) -> Grid:
    """Our numbers next to the paper's."""
    lines: list[list[str]] = []
    for name, ours, paper in ratios:
        lines.append([name, formats.MISSING if ours is None else f"{ours:.3g}", f"{paper:g}"])
    return Grid.of(("number", "here", "paper"), lines)


def regime_warning(ratios: Sequence[Ratio]) -> str:
    """Sentences that name the numbers far from the paper's; empty if there are none."""
    far = [
        f"{name} {ours:.3g} (paper {paper:g})"
        for name, ours, paper in ratios
        if ours is not None and not 1 / _FAR <= ours / paper <= _FAR
    ]
    if not far:
        return ""
    named = f"Over a factor of {_FAR} away from the paper's: {', '.join(far)}."
    return f"{named} Rows may differ from the paper's for this reason."
