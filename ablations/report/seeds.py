"""Confidence intervals, verdicts, and shares of runs that diverged."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ablations.report.grid import Column, Grid, filled
from ablations.report.paper import is_clear_in_paper
from ablations.report.results import SAME
from ablations.report.scores import WITHIN_NOISE, Score
from ablations.report.speed_up import SPEED_MEASURE, SpeedUp
from ablations.report.statistics import (
    MAX_SEEDS,
    Estimate,
    dunnett,
    required_seeds,
    share_interval,
)
from ablations.report.table_numbers import RowNumbers, TableNumbers
from ablations.tables.trainings import Training
from experiments.records.result import Measure
from transformer import formats

_COUNTED = {
    "agrees": "agreeing beyond noise",
    WITHIN_NOISE: "within noise",
    "contradicts": "contradicting beyond noise",
    "none in paper": "without a difference in the paper",
    "same sign": "with the same sign",
    "other sign": "with the other sign",
}
_SMALL_BLEU = 0.4
_LISTED = ("contradicts", "none in paper", "other sign")


def seeds_grid(table: TableNumbers) -> Grid:
    """Confidence intervals and verdicts of all rows with a result; empty if no row has two."""
    if not table.has_seeds:
        return Grid([])
    rows = [row for row in table.rows if row.results]
    columns = [
        Column("row", [row.name for row in rows]),
        Column("seeds", [str(_count(row)) for row in rows]),
    ]
    for measure in table.measures:
        columns += _columns(rows, measure)
        if measure.name == SPEED_MEASURE:
            speeds = [_speed_up(table.speed_ups.get(row.name)) for row in rows]
            columns.append(Column("speed-up, 95 % CI", speeds, measure.short))
    return Grid(filled(columns))


def _count(row: RowNumbers) -> int:
    """The seeds in common with the base, or else the row's; a measure may lack some."""
    estimates = [score.difference or score.ours for score in row.scores.values()]
    return max((value.count for value in estimates if value is not None), default=0)


def _columns(rows: Sequence[RowNumbers], measure: Measure) -> list[Column]:
    group, digits = measure.short, measure.digits
    scores = [row.scores[measure.name] for row in rows]
    differences: list[str] = []
    seeds: list[str] = []
    for row, score in zip(rows, scores, strict=True):
        differences.append("" if row.is_base else _difference(score, digits))
        seeds.append(needed(score.required_seeds) if score.is_judged else "")
    return [
        Column("95 % CI", [interval(score.ours, digits) for score in scores], group),
        Column("Δ, 95 % CI", differences, group),
        Column("verdict", [score.verdict for score in scores], group),
        Column("sign as in paper", [score.agreement for score in scores], group),
        Column("seeds needed", seeds, group),
    ]


def _speed_up(found: SpeedUp | None) -> str:
    if found is None or found.interval is None:
        return ""
    return " to ".join(dict.fromkeys(map(str, found.interval)))  # ends may be the same bound


def _difference(score: Score, digits: int) -> str:
    return SAME if score.is_equal else interval(score.difference, digits, signed=True)


def interval(value: Estimate | None, digits: int, *, signed: bool = False) -> str:
    """The 95 % confidence interval of a mean, such as ``81.2 to 82.3``, or why there is none."""
    if value is None:
        return formats.MISSING
    if value.interval is None:
        return "one seed" if value.count == 1 else "not finite"
    write = formats.difference if signed else formats.number
    return " to ".join(write(end, digits) for end in value.interval)


def needed(seeds: int | None) -> str:
    """Roughly how many seeds a test needs: ``14``, say, or ``more than 100``."""
    return f"more than {MAX_SEEDS}" if seeds is None else str(seeds)


def verdicts(table: TableNumbers) -> Iterator[str]:
    """Sentences, by measure, on which rows differ from the base and agree with the paper."""
    others = [row for row in table.rows if not row.is_base and row.results]
    if others and table.base is None:
        yield "No base was run, so there are no differences (Δ) to show."
    if not others or table.base is None or not table.base.results:
        return
    if any(score.is_judged for row in others for score in row.scores.values()):
        for measure in table.measures:
            yield f"{measure.title}: {_noise(others, measure)}."
            yield from _all_together(others, table.base, table, measure)
            yield from _seeds_of_small_difference(table, measure)
    else:
        yield (
            "No row has two seeds in common with the base, so noise cannot be judged; "
            "run --seeds 1,2,3 adds seeds."
        )
    for measure in table.measures:
        yield from _agreements(table.rows, measure)
        clear = [row for row in others if is_clear_in_paper(row, table.base, measure.name)]
        yield from _agreements(
            clear, measure, " whose difference in the paper exceeds one seed's noise"
        )


def _noise(rows: Sequence[RowNumbers], measure: Measure) -> str:
    scores = {row.name: row.scores[measure.name] for row in rows}
    known = [name for name, score in scores.items() if score.is_judged]
    equal = [name for name, score in scores.items() if score.is_equal]
    unknown = len(rows) - len(known) - len(equal)
    parts: list[str] = []
    if known:
        noise = [name for name in known if scores[name].verdict == WITHIN_NOISE]
        verb = "row is" if len(known) == 1 else "rows are"
        text = f"{len(noise)} of {len(known)} {verb} within noise of the base"
        parts.append(f"{text} ({', '.join(noise)})" if noise else text)
    if unknown:
        parts.append(f"for {unknown} more, noise" if known else "noise")
        parts[-1] += " cannot be judged"
    if equal:
        verb = "equals" if len(equal) == 1 else "equal"
        parts.append(f"{len(equal)} {verb} the base by construction ({', '.join(equal)})")
    return "; ".join(parts)


def _all_together(
    rows: Sequence[RowNumbers], base: RowNumbers, table: TableNumbers, measure: Measure
) -> Iterator[str]:
    """The rows that differ from the base, with a family-wise error of 5 % over all rows."""
    seeds_of_base = {result.seed for result in base.results}
    pooled: dict[str, Estimate] = {}
    shared: dict[Training | None, frozenset[int]] = {}  # seeds, by training
    for row in rows:
        difference = row.scores[measure.name].difference
        if difference and difference.pooled_freedom:
            pooled[row.name] = difference
            seeds = frozenset(seeds_of_base & {result.seed for result in row.results})
            shared[row.training] = max(shared.get(row.training, seeds), seeds, key=len)
    if len(shared) < 2:  # the row's own confidence interval says it, without simulation
        return
    critical = dunnett(tuple(shared.values()), table.pools[measure.name].freedom)
    noise = [
        name
        for name, difference in pooled.items()
        if abs(difference.mean) <= critical * (difference.standard_error or 0.0)
    ]
    once = "rows that share a training count once, " if len(shared) < len(pooled) else ""
    text = (
        f"{measure.title}, all rows together (Dunnett's test, {once}5 %: {critical:.2f} standard "
        f"errors): {len(pooled) - len(noise)} of {len(pooled)} differ from the base"
    )
    if 0 < len(noise) < len(pooled):
        text += f", all but {', '.join(noise)}"
    yield f"{text}."


def _seeds_of_small_difference(table: TableNumbers, measure: Measure) -> Iterator[str]:
    """How many seeds of each row would show a difference as small as the paper's."""
    spread = table.pools.get(measure.name)
    if measure.name != "bleu" or spread is None or table.base is None:
        return
    seeds = len(table.base.results)
    small = Estimate(_SMALL_BLEU, 0.0, seeds, pooled_freedom=spread.freedom)
    count = needed(required_seeds(replace(small, deviation=math.sqrt(2) * spread.deviation)))
    roughly = f"about {count}" if count.isdigit() else count
    text = f"{roughly} seeds of each row would show a difference of {_SMALL_BLEU}"
    yield f"{measure.title}: {text}, the median of Table 3."


def _agreements(rows: Sequence[RowNumbers], measure: Measure, which: str = "") -> Iterator[str]:
    """How the signs of the rows' differences compare with the paper's; ``which`` rows they are."""
    names: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        names[row.scores[measure.name].agreement].append(row.name)
    counts: list[str] = []
    total = 0
    for agreement, words in _COUNTED.items():
        alike = names[agreement]
        if alike:
            listed = f" ({', '.join(alike)})" if agreement in _LISTED else ""
            counts.append(f"{len(alike)} {words}{listed}")
            total += len(alike)
    if counts:
        sign = f"{measure.title}, sign of Δ compared with the paper's"
        yield f"{sign}, {formats.counted(total, 'row')}{which}: {', '.join(counts)}."


def shares_of_diverged(table: TableNumbers) -> Iterator[str]:
    """A line for each row with a diverged run, then lines for the others; none if none diverged."""
    rows = [row for row in table.rows if row.results]
    if not any(row.diverged for row in rows):
        return
    sound: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        if row.diverged:
            yield f"{row.name}: {_share(len(row.diverged), len(row.results))}{_steps(row)}"
        else:
            sound[len(row.results)].append(row.name)
    for count, names in sorted(sound.items(), reverse=True):
        yield f"{', '.join(names)}: {_share(0, count)}{' each' if len(names) > 1 else ''}"


def _share(count: int, total: int) -> str:
    low, high = share_interval(count, total)
    return f"diverged: {count} of {total} (95 % CI {100 * low:.0f} % to {100 * high:.0f} %)"


def _steps(row: RowNumbers) -> str:
    """The steps at which training ended; runs on a plateau took all steps."""
    ended = sorted(result.diverged_at for result in row.diverged if result.diverged_at)
    return f", at step {', '.join(f'{step:,}' for step in ended)}" if ended else ""
