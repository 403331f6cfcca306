"""Compare new runs of a row with its committed runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from ablations.folder import TableFolder
from ablations.report.statistics import (
    CONFIDENCE,
    POWER,
    Estimate,
    Pool,
    pool_within,
    t_quantile,
)
from ablations.report.table_numbers import by_seed
from experiments.records.progress import RunState
from experiments.records.result import Measure, Result
from transformer import formats
from transformer.config import text_settings
from transformer.errors import InputError, unknown_name

# Why runs of one seed may differ in digits; a device's name includes its number of threads.
_MAY_DIFFER = {
    "precision": "another precision",
    "device": "another device",
    "versions": "other versions",
}
Results = Mapping[int, Result]  # of a row, by seed


def check_confirmable(there: TableFolder, row: str) -> None:
    """Check that a committed row has results, trained with the current source of its classes.

    Raises:
        InputError: if not; for another source it names the commit that has it.
    """
    known = [each.name for each in there.plan.rows if each.seeds]
    if row not in known:
        raise unknown_name("row", row, known)
    runs = [run for run in there.runs() if run.row == row]
    for run in runs:
        if run.state == RunState.STALE:
            commit = there.commit(run.name)
            raise InputError(
                f"row {row} of {there.path} was trained differently ({run.problem}): check out "
                f"commit {commit} to train it again, there with run {there.plan.table} --scale "
                f"{there.plan.scale} --rows {row} --seeds …"
            )
        if run.problem:
            raise InputError(f"{run.name} of {there.path} cannot be used: {run.problem}")
    if not any(run.result for run in runs):
        raise InputError(f"row {row} of {there.path} has no finished run to confirm")


def describe_confirmation(there: TableFolder, here: TableFolder, row: str) -> Iterator[str]:
    """Lines that say for each measure how a row's new runs differ from the committed ones."""
    results = _results(there)
    old, new = results[row], _results(here)[row]
    fresh = {seed: result for seed, result in new.items() if seed not in old}
    if fresh:
        yield f"{row} of {there.title}: {_seeds(fresh)} trained here, {_seeds(old)} in {there.path}"
    else:
        yield f"{row} of {there.title}: no new seed is finished here"
    for seed in sorted(new.keys() & old.keys()):
        yield f"  seed {seed}: {_by_digit(old[seed], new[seed], there.plan.compared)}"
    if not fresh:
        return
    if _has_diverged(old) or _has_diverged(fresh):
        shares = (_share_diverged(fresh), _share_diverged(old))
        yield f"  diverged: {shares[0]} here, {shares[1]} there; the others are compared"
    sound = [_sound(each) for each in (old, fresh)]
    for measure in there.plan.compared:
        spread = _spread(there, results, row, measure)
        before, after = (by_seed(each.values(), measure) for each in sound)
        yield from _compare(measure, before, after, spread)


def _results(folder: TableFolder) -> Mapping[str, Results]:
    """The results of each row."""
    found: dict[str, dict[int, Result]] = defaultdict(dict)
    for run in folder.runs():
        if run.result is not None:
            found[run.row][run.result.seed] = run.result
    return found


def _has_diverged(results: Results) -> bool:
    return any(result.has_diverged for result in results.values())


def _share_diverged(results: Results) -> str:
    return f"{len(results) - len(_sound(results))} of {len(results)}"


def _sound(results: Results) -> Results:
    return {seed: result for seed, result in results.items() if not result.has_diverged}


def _seeds(results: Results) -> str:
    word = "seed" if len(results) == 1 else "seeds"
    return f"{word} {', '.join(map(str, sorted(results)))}"


def _by_digit(old: Result, new: Result, measures: Sequence[Measure]) -> str:
    """Whether two runs of one seed have the same scores, and if not, what the reason may be."""
    if all(measure.of(old) == measure.of(new) for measure in measures):
        return "every digit is the same"
    others = [
        word for name, word in _MAY_DIFFER.items() if getattr(old, name) != getattr(new, name)
    ]
    if others:
        return f"different digits, with {' and '.join(others)}"
    return "different digits, though precision, device and versions are the same"


def _spread(
    there: TableFolder, results: Mapping[str, Results], row: str, measure: Measure
) -> Pool | None:
    """How much runs of one row vary, pooled over the committed rows with the same text and pieces.

    Rows with a diverged run are left out, and of the rows that share a training, only one counts.
    """
    text = text_settings(there.configs[row])
    chosen = [row]
    for training in there.trainings:
        if row in training.rows or text_settings(there.configs[training.rows[0]]) != text:
            continue
        finished = [name for name in training.rows if name in results]
        sound = [name for name in finished if not _has_diverged(results[name])]
        chosen += sound[:1]
    values = {name: by_seed(_sound(results[name]).values(), measure) for name in chosen}
    return pool_within(values)


def _compare(
    measure: Measure, old: Mapping[int, float], new: Mapping[int, float], spread: Pool | None
) -> Iterator[str]:
    """Lines with the difference of the means, its confidence interval and verdict, and the smallest
    difference that this many seeds would show.
    """
    if not old or not new:
        return
    digits = max(2, measure.digits)
    here, there = (formats.number(fmean(each.values()), digits) for each in (new, old))
    text = f"{measure.title}: {here} here, {there} there, "
    change = confirmation(old, new, spread)
    text += formats.difference(change.mean, digits)
    if change.interval is None or change.standard_error is None:
        yield f"{text}; the table has no spread to judge it"
        return
    low, high = (formats.difference(end, digits) for end in change.interval)
    verdict = "no difference" if change.within_noise else "DIFFERENT"
    yield f"{text} (95 % CI {low} to {high}): {verdict}"
    least = formats.number(smallest_shown(change), digits)
    yield f"  this many seeds would show a difference of {least} in 80 % of cases"


def confirmation(
    old: Mapping[int, float], new: Mapping[int, float], spread: Pool | None
) -> Estimate:
    """The mean of the ``new`` runs minus that of the ``old``, which share no seed.

    Its standard error is s · √(1/n + 1/m), where s is the ``spread`` of runs of one row. If rows
    spread too differently to pool, s is pooled over these two samples alone.
    """
    mean = fmean(new.values()) - fmean(old.values())
    if spread is None or not spread.is_usable:
        spread = pool_within({"old": old, "new": new})
    if spread is None or not math.isfinite(mean):
        return Estimate(mean, None, 1)
    error = spread.deviation * math.sqrt(1 / len(old) + 1 / len(new))
    return Estimate(mean, error, 1, pooled_freedom=spread.freedom)


def smallest_shown(found: Estimate) -> float:
    """The true difference that a 5 % test with this standard error finds in 80 % of cases."""
    freedom, error = found.pooled_freedom, found.standard_error
    if freedom is None or error is None:
        raise ValueError("an estimate without a pooled spread")
    return (t_quantile((1 + CONFIDENCE) / 2, freedom) + t_quantile(POWER, freedom)) * error
