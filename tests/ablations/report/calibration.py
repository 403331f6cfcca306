"""Every percentage that a report prints, simulated with the report's own functions.

``python -m tests.ablations.report.calibration`` prints the table of docs/results/calibration.md.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from ablations.folder import open_folder
from ablations.report.speed_up import Curve, speed_up
from ablations.report.statistics import (
    Estimate,
    correlation_interval,
    dunnett,
    estimate,
    one_of_each,
    paired_difference,
    pool,
    rank_correlation,
    required_seeds,
)
from ablations.table1.report import fit_exponent
from experiments.evaluate import significance
from experiments.records.outputs import hypotheses_path

# Rows and seeds; a quarter of the runs is missing in the second list.
SHAPES = (
    (3, 2), (3, 3), (3, 10), (5, 2), (5, 5), (7, 2), (9, 2), (9, 3), (20, 2), (20, 3), (20, 10),
)  # fmt: skip
GAPS = ((5, 3), (9, 3), (20, 3), (20, 5))
UNEQUAL = ((5, 3), (20, 3), (20, 5))
# Trainings, seeds, and the rows of each training.
SHARED = ((2, 3, 6), (4, 3, 3), (10, 3, 2), (4, 5, 3))
RESULTS = Path(__file__).parents[3] / "experiments" / "results" / "table3-small"


class Finding(NamedTuple):
    """The simulated shares, in percent and one for each design, of what a report promises.

    ``head`` is the beginning of its line in the docs: what is printed, on which designs it is
    simulated, what is promised. ``least`` and ``most`` bound the shares that are as the docs say,
    errors of simulation included.
    """

    head: str
    shares: Sequence[float]
    least: float
    most: float

    @property
    def line(self) -> str:
        """Its line of the Markdown table."""
        ends = dict.fromkeys(f"{end:.1f}" for end in (min(self.shares), max(self.shares)))
        return f"{self.head} {' to '.join(ends)} |"


@functools.cache
def simulate(
    trainings: int,
    seeds: int,
    rows: int = 1,
    *,
    gaps: bool = False,
    spreads: tuple[float, ...] = (),
    apart: float = 0.0,
) -> dict[str, float]:
    """Shares in percent over tables in which no row differs from the base, and seeds matter.

    Args:
        rows: of each training, the first of which has the base
        gaps: whether a quarter of the runs is missing
        spreads: standard deviations of as many trainings or more, the base's first; all 1 if empty
        apart: the standard deviation of a row around its training
    """
    random = np.random.default_rng(trainings * 100 + seeds)
    kept = random.random((trainings, seeds)) >= 0.25 * gaps
    scales = np.reshape(spreads[:trainings] or [1.0] * trainings, (trainings, 1))
    training_of = np.repeat(np.arange(trainings), rows)
    held: dict[str, list[bool]] = defaultdict(list)
    for _ in range(max(4_000, 20_000 // trainings)):
        noise = scales * random.standard_normal((trainings, seeds))
        figures = (noise + 2 * random.standard_normal(seeds))[training_of]
        if apart:
            figures += apart * random.standard_normal(figures.shape)
        _judge(
            [
                {seed: x for seed, x in enumerate(row) if kept[training, seed]}
                for training, row in zip(training_of, figures.tolist(), strict=True)
            ],
            training_of.tolist(),
            held,
        )
    return {name: percent(found) for name, found in held.items()}


def _judge(
    table: list[dict[int, float]], trainings: list[int], held: dict[str, list[bool]]
) -> None:
    """Which claims about a table hold in which all true means and differences are 0."""
    training_of = {str(index): training for index, training in enumerate(trainings)}
    found = pool(one_of_each(dict(zip(training_of, table, strict=True)), training_of))
    assert found is not None
    always = dataclasses.replace(found, p_equal=1.0)
    held["rejects"].append(not found.is_usable)
    for row in table:
        mean = estimate(list(row.values()))
        if mean and mean.interval:
            held["mean"].append(mean.interval[0] <= 0 <= mean.interval[1])
    pairs = list(zip(trainings, table, strict=True))[1:]
    seeds = {at: frozenset(row.keys() & table[0].keys()) for at, row in pairs if at != trainings[0]}
    critical = dunnett(tuple(filter(None, seeds.values())), found.freedom)
    differs = False
    for index, (training, row) in enumerate(pairs):
        own = paired_difference(row, table[0])
        if own is None:
            continue
        if training == trainings[0]:
            held["same training"].append(bool(own.within_noise))
            continue
        pooled, chosen = always.apply(own), found.apply(own)
        kinds = {"own": own, "pooled": pooled, "chosen": chosen}
        if index == 0:
            kinds["second row"] = chosen
        for name, kind in kinds.items():
            if kind.within_noise is not None:
                held[name].append(kind.within_noise)
        if chosen.interval:
            held["above"].append(chosen.interval[0] > 0)
            held["below"].append(chosen.interval[1] < 0)
        differs |= abs(pooled.mean) > critical * (pooled.standard_error or 0.0)
    held["family"].append(differs)
    held["family chosen"].append(differs and found.is_usable)


def percent(held: Iterable[bool]) -> float:
    """The share that holds."""
    found = list(held)
    return 100 * sum(found) / len(found)


def equal_spreads() -> Iterator[Finding]:
    """Tables whose rows spread alike."""
    whole = [simulate(*shape) for shape in SHAPES]
    gaps = [simulate(*shape, gaps=True) for shape in GAPS]
    for name, claim, truth in (
        ("mean", "95 % confidence interval of a mean", 95),
        ("pooled", "95 % confidence interval of Δ, pooled", 95),
        ("own", "95 % confidence interval of Δ, each row alone", 95),
        ("chosen", "95 % confidence interval of Δ, as the test chooses", 95),
        ("family", "Dunnett's test: some row differs where none does", 5),
        ("rejects", "test of equal variances rejects them", 5),
    ):
        for found, designs in ((whole, "all runs"), (gaps, "a quarter missing")):
            slack = 2.5 if name == "family" and found is gaps else 1.5
            head = f"| {claim} | {designs} | {truth} |"
            yield Finding(head, [x[name] for x in found], truth - slack, truth + 1.5)
    sides = [x[side] for x in (*whole, *gaps) for side in ("above", "below")]
    head = "| agrees, or contradicts, without an effect: each | both | 2.5 |"
    yield Finding(head, sides, 0, 3.5)


def unequal_spreads() -> Iterator[Finding]:
    """Tables whose rows do not spread alike, which few seeds seldom show."""
    twice, row, base = (1, 2) * 10, (1, 3, *[1] * 18), (3, *[1] * 19)
    interval, test = (
        "95 % confidence interval of Δ",
        "Dunnett's test, the base with 3 times the spread",
    )
    for claim, name, spreads, truth, least, most in (
        (f"{interval}, every second row with twice the spread: all", "chosen", twice, 95, 90, 98),
        (f"{interval}, one row with 3 times the spread: this row", "second row", row, 95, 79, 98),
        (f"{interval}, the base with 3 times the spread: all", "chosen", base, 95, 79, 98),
        (f"{test}: some row differs where none does", "family chosen", base, 5, 5, 25),
    ):
        shares = [simulate(*shape, spreads=spreads)[name] for shape in UNEQUAL]
        head = f"| {claim} | 5 rows of 3 seeds, 20 of 3 and 5 | {truth} |"
        yield Finding(head, shares, least, most)


def shared_trainings() -> Iterator[Finding]:
    """Tables of rows that share trainings, near their training and far from it."""
    near, far = ([simulate(*shape, apart=apart) for shape in SHARED] for apart in (0.1, 0.5))
    tenth, half = (f"rows of one training, {x} its spread apart" for x in ("a tenth of", "half"))
    for name, claim, truth in (
        ("same training", "95 % confidence interval of Δ, in the base's training", 95),
        ("pooled", "95 % confidence interval of Δ, pooled", 95),
        ("chosen", "95 % confidence interval of Δ, as the test chooses", 95),
        ("family", "Dunnett's test: some row differs where none does", 5),
    ):
        for found, designs in ((near, tenth), (far, half)):
            most = 5 if name == "family" and found is far else 1.5
            head = f"| {claim} | {designs} | {truth} |"
            yield Finding(head, [x[name] for x in found], truth - 1.5, truth + most)


def speed_ups() -> Iterator[Finding]:
    """Rows whose steps are worth 0.6 to 1.5 of the base's, with curves like those at small."""
    random = np.random.default_rng(5)
    steps = np.arange(1_000, 12_001, 1_000)
    of_runs, of_points = (0.006, 0.003), (0.003, 0.006)  # of the logarithm: 0.04 in perplexity
    for claim, own, each in zip(("a run", "a validation"), of_runs, of_points, strict=True):
        shares: list[float] = []
        for rows, seeds in ((5, 3), (20, 3), (9, 2), (9, 5)):
            truths = np.resize([1.0, 0.6, 0.8, 1.2, 1.5], rows)
            held: list[bool] = []
            for _ in range(2_000 // rows):
                true = 1.45 + 1.6 * (np.outer(truths, steps) / 1_000)[:, None] ** -0.8
                noise = own * random.standard_normal((rows, seeds, 1))
                noise = noise + each * random.standard_normal((rows, seeds, len(steps)))
                held += _speeds_held(np.exp(true + noise), truths.tolist(), steps.tolist())
            shares.append(percent(held))
        what = f"95 % confidence interval of a speed-up, most noise that of {claim}"
        head = f"| {what} | 5 to 20 rows | 95 |"
        yield Finding(head, shares, 92, 98)


def _speeds_held(
    curves: np.ndarray[Any, np.dtype[np.float64]], truths: Sequence[float], steps: Sequence[int]
) -> Iterator[bool]:
    """Whether the interval of each row but the base, the first, has its true speed-up."""
    finals = [dict(enumerate(row)) for row in curves[..., -1].tolist()]
    found = pool(dict(zip(map(str, range(len(finals))), finals, strict=True)))
    assert found is not None
    of_rows = np.exp(np.log(curves).mean(axis=1)).tolist()
    base, *others = (Curve(dict(zip(steps, row, strict=True)), ends=False) for row in of_rows)
    for final, row, truth in zip(finals[1:], others, truths[1:], strict=True):
        difference = paired_difference(final, finals[0])
        assert difference is not None
        speed = speed_up(base, row, found.apply(difference))
        assert speed is not None and speed.interval is not None
        yield speed.interval[0].value <= truth <= speed.interval[1].value


def correlations() -> Iterator[Finding]:
    """Rows drawn from normal distributions of known correlation."""
    random = np.random.default_rng(1)
    claim = "95 % confidence interval of the rank correlation, true correlation 0 to 0.95"
    for counts, designs in (((4, 5, 6, 8), "4 to 8 rows"), ((10, 15, 20), "10 to 20 rows")):
        shares: list[float] = []
        for count in counts:
            for rho in (0.0, 0.3, 0.6, 0.8, 0.9, 0.95):
                truth = 6 / math.pi * math.asin(rho / 2)
                x, other = random.standard_normal((2, 4_000, count))
                y = rho * x + math.sqrt(1 - rho**2) * other
                pairs = zip(x.tolist(), y.tolist(), strict=True)
                found = [correlation_interval(rank_correlation(*x) or 0.0, count) for x in pairs]
                shares.append(percent(i is not None and i[0] <= truth <= i[1] for i in found))
        yield Finding(f"| {claim} | {designs} | 95 |", shares, 92.5, 100)


def seeds_needed() -> Iterator[Finding]:
    """The power of the promised number of seeds, where effect and spread are as observed."""
    random = np.random.default_rng(2)
    shares: list[float] = []
    for effect in (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0):
        count = required_seeds(Estimate(effect, 1.0, 3)) or 0
        drawn = (random.standard_normal((6_000, count)) + effect).tolist()
        estimates = map(estimate, drawn)
        shares.append(percent(x is not None and not x.within_noise for x in estimates))
    head = "| seeds needed: power with as many | each row alone, 2 to 90 seeds | 80 |"
    yield Finding(head, shares, 78.5, 100)


def comparison() -> Iterator[Finding]:
    """Two systems between which chance exchanges the lines, on lines drawn by chance."""
    files = [open_folder(RESULTS).read(f"base/seed-{seed}").files for seed in (1, 2, 3)]
    texts = [hypotheses_path(path, "valid").read_text(encoding="utf-8") for path in files]
    lines = np.array([text.splitlines() for text in texts])
    random = np.random.default_rng(3)
    one, other, references = (row.tolist() for row in lines)
    truth = BLEU().corpus_score(one + other, [references * 2]).score
    false: list[bool] = []
    covered: list[bool] = []
    with mock.patch.multiple(significance, _TRIALS=400, _SAMPLES=400):
        for _ in range(400):
            sample = lines[:, random.integers(lines.shape[1], size=300)]
            swapped = random.random(sample.shape[1]) < 0.5
            first, second = np.where(swapped, sample[:2], sample[1::-1]).tolist()
            found = significance.compare_lines(("", first), ("", second), sample[2].tolist())
            false.append("noise" not in found.verdict)
            covered += [bool(x.low <= truth <= x.high) for x in (found.first, found.second)]
    for claim, truth, held, least, most in (
        ("calls two equal systems different", 5, false, 0, 8),
        ("95 % confidence interval of BLEU", 95, covered, 91, 100),
    ):
        head = f"| compare: {claim} | 300 lines of Multi30k | {truth} |"
        yield Finding(head, [percent(held)], least, most)


def exponents() -> Iterator[Finding]:
    """Powers of a length with noise, as Table 1 fits them."""
    random = np.random.default_rng(4)
    held: list[bool] = []
    for noise in random.standard_normal((4_000, 3, 5)):
        found = fit_exponent(
            {(2**x, d): 4**x * math.exp(noise[d, x]) for d in range(3) for x in range(5)}
        )
        assert found is not None
        held.append(abs(found[0] - 2) <= found[1])
    head = "| 95 % confidence interval of Table 1's exponents | 3 widths, 5 lengths | 95 |"
    yield Finding(head, [percent(held)], 93.5, 96.5)


CHECKS = (
    *(equal_spreads, unequal_spreads, shared_trainings, speed_ups),
    *(correlations, seeds_needed, comparison, exponents),
)


def main() -> None:
    """Print the table of docs/results/calibration.md."""
    print("| what is printed | simulated on | promised, % | found, % |")
    print("| --- | --- | --: | --: |")
    for check in CHECKS:
        for finding in check():
            print(finding.line, flush=True)


if __name__ == "__main__":
    main()
