"""Measure the noise between seeds, and its causes.

It prints each measure's noise, how much of BLEU's is due to the choice of lines and to the length
of outputs, and which measure tells rows apart:
``python -m bench.noise experiments/results/noise-small experiments/results/table3-small …``
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from mpmath import findroot, gammainc
from sacrebleu.metrics.bleu import BLEU

from ablations.folder import TableFolder
from ablations.report.statistics import pool_within
from experiments.evaluate.trained import text_of_split
from experiments.records.outputs import hypotheses_path
from experiments.records.result import Result
from experiments.records.run import Run

MEASURES: Mapping[str, Callable[[Result], float | None]] = {
    "BLEU": lambda result: result.bleu,
    "logarithm of perplexity": lambda result: math.log(result.perplexity),
    "BLEU averaged": lambda result: result.averaged and result.averaged.bleu,
}
_RESAMPLED = 400


def spread(values: Sequence[float]) -> str:
    """The standard deviation with its 95 % confidence interval, by the chi-squared distribution."""
    freedom, deviation = len(values) - 1, statistics.stdev(values)
    low, high = (deviation * math.sqrt(freedom / _chi_squared(p, freedom)) for p in (0.975, 0.025))
    mean = statistics.fmean(values)
    return f"{deviation:.4g} ({low:.4g} to {high:.4g}) around {mean:.4g}, {len(values)} seeds"


def _chi_squared(probability: float, freedom: int) -> float:
    """The value that chi-squared stays below with ``probability``."""

    def excess(x: float) -> float:
        return gammainc(freedom / 2, 0, x / 2, regularized=True) - probability

    return float(findroot(excess, (0.5 * freedom, 1.5 * freedom), solver="illinois"))


def parts_of_bleu(runs: Sequence[Run]) -> str:
    """How much of BLEU's variance between seeds is due to the choice of lines, and to length."""
    metric, statistics_of_lines, lengths = BLEU(), [], []
    for run in runs:
        assert run.experiment is not None
        references = text_of_split(run.experiment, "valid").references
        lines = hypotheses_path(run.files, "valid").read_text(encoding="utf-8").splitlines()
        of_run = metric._extract_corpus_statistics(lines, [references])
        statistics_of_lines.append(of_run)
        ours, theirs = (sum(of_line[side] for of_line in of_run) for side in (0, 1))  # in tokens
        lengths.append(math.log(ours / theirs))
    table = np.array(statistics_of_lines)  # (seeds, lines, statistics)
    whole = _scores(metric, table)
    total = float(np.var(whole, ddof=1))
    random = np.random.default_rng(0)
    resampled: list[list[float]] = []
    for _ in range(_RESAMPLED):
        resampled.append(
            _scores(metric, table[:, random.integers(table.shape[1], size=table.shape[1])])
        )
    apart = np.array(resampled) - np.mean(resampled, axis=1, keepdims=True)
    of_lines = float(apart.var(axis=0).mean()) * len(runs) / (len(runs) - 1)
    by_length = statistics.correlation(lengths, whole) ** 2
    left = math.sqrt(max(0.0, total - of_lines))
    return (
        f"with any number of lines {left:.2f} would be left of {math.sqrt(total):.2f}; the length "
        f"of outputs explains {100 * by_length:.0f} % of the variance"
    )


def _scores(metric: BLEU, table: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[float]:
    sums = table.sum(axis=1).tolist()
    return [metric._compute_score_from_stats(each).score for each in sums]


def show(folder: TableFolder) -> None:
    """Print the noise of rows with ten seeds or more, and how each measure tells rows apart."""
    rows: dict[str, list[Run]] = defaultdict(list)
    for run in folder.runs():
        if run.result is not None:
            rows[run.row].append(run)
    for name, runs in rows.items():
        if len(runs) < 10:
            continue
        print(f"  {name}")
        for measure, value in MEASURES.items():
            values = [value(run.result) for run in runs if run.result is not None]
            if None not in values:
                print(f"    {measure}: {spread([x for x in values if x is not None])}")
        print(f"    {parts_of_bleu(runs)}")
    if len(rows) > 2:
        for measure, value in MEASURES.items():
            print(f"  {measure}: {separation(rows, value)}")


def separation(rows: Mapping[str, Sequence[Run]], value: Callable[[Result], float | None]) -> str:
    """The spread of rows over the noise of a run."""
    by_seed: dict[str, dict[int, float]] = {}
    for name, runs in rows.items():
        found = {run.result.seed: value(run.result) for run in runs if run.result is not None}
        by_seed[name] = {seed: x for seed, x in found.items() if x is not None}
    noise = pool_within(by_seed)
    means = [statistics.fmean(row.values()) for row in by_seed.values() if row]
    if noise is None or len(means) < 2:
        return "not in all rows"
    apart = statistics.stdev(means)
    return (
        f"rows {apart:.3g} apart, noise {noise.deviation:.3g}, ratio {apart / noise.deviation:.1f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", nargs="+", type=Path)
    for directory in parser.parse_args().directories:
        print(directory)
        show(TableFolder(directory))
