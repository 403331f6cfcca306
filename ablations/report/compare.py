"""Test whether two rows of a table differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ablations.folder import TableFolder
from ablations.report.seeds import interval, needed
from ablations.report.statistics import estimate, required_seeds
from ablations.tables.find import parse_seeds
from ablations.tables.table import Cell
from experiments.evaluate.significance import Significance, compare_runs
from experiments.records.result import MEASURES
from experiments.records.run import Run
from transformer import formats
from transformer.errors import InputError, unknown_name


def compare_rows(folder: TableFolder, first: str, second: str, seeds: str | None) -> Iterator[str]:
    """Compare the BLEU of two rows: a line for each seed, by randomising over the translated lines,
    and one over all seeds.

    Args:
        second: the row whose BLEU minus that of ``first`` is the difference
        seeds: such as ``1-3``; None for all that both rows have finished
    """
    rows = {row.name: row.seeds for row in folder.plan.rows}
    for name in (first, second):
        if name not in rows:
            raise unknown_name("row", name, rows)
    finished: dict[int, tuple[Run, Run]] = {}
    for seed in sorted({*rows[first]} & {*rows[second]}):
        ours, theirs = (folder.read(str(Cell(row, seed))) for row in (first, second))
        # A run that diverged has translated nothing.
        if all(run.result and run.diverged_at is None for run in (ours, theirs)):
            finished[seed] = ours, theirs
    chosen = tuple(finished) if seeds is None else parse_seeds(seeds)
    if first == second or not chosen or not finished.keys() >= set(chosen):
        known = ", ".join(map(str, finished)) or "none"
        raise InputError(f"give two rows, and seeds that both have finished; those are: {known}")
    pairs: list[Significance] = []
    for seed in chosen:
        pair = compare_runs(*finished[seed], split="valid")
        one, other = replace(pair.first, name=first), replace(pair.second, name=second)
        pair = replace(pair, first=one, second=other)
        pairs.append(pair)
        yield (
            f"seed {seed}: BLEU of {first} {one.bleu:.2f}, of {second} {other.bleu:.2f}, "
            f"difference {formats.difference(pair.difference, 2)}, p = {pair.p_value:.3f}: "
            f"{pair.verdict}"
        )
    yield _over_seeds([pair.difference for pair in pairs], first, second)
    yield pairs[0].signature


def _over_seeds(differences: Sequence[float], first: str, second: str) -> str:
    """The difference over seeds, whose noise a test over lines does not see."""
    low, high = MEASURES["bleu"].scale
    over = estimate(differences, (low - high, high - low))
    if over is None or over.within_noise is None:
        return "one seed: p covers only the choice of lines; run --seeds 1,2,3 adds seeds"
    better, worse = (second, first) if over.mean > 0 else (first, second)
    verdict = f"{better} is better than {worse}"
    if over.within_noise:
        seeds = needed(required_seeds(over))
        verdict = f"within noise; seeds needed to tell them apart, roughly: {seeds}"
    return (
        f"over {over.count} seeds: difference {formats.difference(over.mean, 2)}, "
        f"95 % CI {interval(over, 2, signed=True)}: {verdict}"
    )
