"""Test whether two rows of a table differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ablations.report.sentences import interval, needed
from ablations.report.statistics import mean_difference
from ablations.runs.attempts import read_ended
from ablations.tables.find import parse_seeds
from ablations.tables.plan import Plan, load_plan
from ablations.tables.table import Cell
from experiments.evaluate.significance import Significance, compare_runs
from experiments.records.result import MEASURES
from transformer import formats
from transformer.errors import InputError, unknown_name

_DIGITS = 2


def compare_rows(directory: Path, first: str, second: str, seeds: str | None) -> Iterator[str]:
    """Compare BLEU of two rows: a line per seed, by randomising its lines, and one over all.

    Args:
        directory: of a table's runs
        second: the row from whose BLEU that of ``first`` is subtracted
        seeds: such as ``1,2``; None for all that both rows have finished

    Raises:
        InputError: for an unknown row, twice the same row, a seed that is not finished in both
            rows, or translations that cannot be compared.
    """
    plan = load_plan(directory)
    chosen = _seeds(plan, directory, (first, second), seeds)
    yield (
        f"{plan.table} at scale {plan.scale}, validation set, BLEU: {second} less {first}, "
        "sacreBLEU's approximate randomisation"
    )
    found: list[Significance] = []
    for seed in chosen:
        ours, theirs = (Cell(row, seed).directory(directory) for row in (first, second))
        pair = compare_runs(ours, theirs, "valid")
        one, other = replace(pair.first, name=first), replace(pair.second, name=second)
        found.append(pair := replace(pair, first=one, second=other))
        yield (
            f"seed {seed}: {first} {one.bleu:.{_DIGITS}f}, {second} {other.bleu:.{_DIGITS}f}, "
            f"difference {formats.difference(pair.difference, _DIGITS)}, p = {pair.p_value:.3f}, "
            f"{pair.lines:,} lines: {pair.verdict}"
        )
    yield _over_seeds([pair.difference for pair in found], first, second)
    yield found[0].signature


def _seeds(plan: Plan, directory: Path, rows: tuple[str, str], wanted: str | None) -> Sequence[int]:
    """The seeds to compare: those wanted, or all that are finished in both rows."""
    by_name = {row.name: row for row in plan.rows}
    for name in rows:
        if name not in by_name:
            raise unknown_name("row", name, by_name)
    if rows[0] == rows[1]:
        raise InputError(f"row {rows[0]!r} is given twice: name two rows")
    done = [
        [seed for seed in by_name[name].seeds if read_ended(Cell(name, seed).directory(directory))]
        for name in rows
    ]
    common = [seed for seed in done[0] if seed in done[1]]
    chosen = common if wanted is None else parse_seeds(wanted)
    missing = [seed for seed in chosen if seed not in common]
    if missing or not chosen:
        what = f"seed {missing[0]} is not" if missing else "no seed is"
        has = " and ".join(
            f"{name} has {', '.join(map(str, seeds)) or 'none'}"
            for name, seeds in zip(rows, done, strict=True)
        )
        raise InputError(f"{what} finished in both rows of {directory}: {has}")
    return chosen


def _over_seeds(differences: Sequence[float], first: str, second: str) -> str:
    """The difference over seeds, of which a test over lines knows nothing."""
    over = mean_difference(differences, MEASURES["bleu"].scale)
    if over is None or over.within_noise is None:
        return "one seed: p reflects the choice of lines only; run --seeds 1,2,3 adds seeds"
    better, worse = (second, first) if over.mean > 0 else (first, second)
    verdict = f"{better} is better than {worse}"
    if over.within_noise:
        verdict = f"within noise; approximate seeds needed to tell them apart: {needed(over)}"
    return (
        f"over {over.count} seeds: difference {formats.difference(over.mean, _DIGITS)}, "
        f"95 % in {interval(over, _DIGITS, signed=True)}: {verdict}"
    )
