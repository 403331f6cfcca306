"""Compute the numbers of a table's report."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from ablations.folder import TableFolder
from ablations.report.scores import Score
from ablations.report.speed_up import SPEED_MEASURE, SpeedUp, mean_curve, speed_up
from ablations.report.statistics import (
    Estimate,
    Pool,
    estimate,
    one_of_each,
    paired_difference,
    pool,
)
from ablations.report.table_numbers import (
    OTHER_SCORES,
    RowNumbers,
    TableNumbers,
    by_seed,
    has_same_pieces,
)
from ablations.tables.changes import COLUMNS
from ablations.tables.plan import Plan, PlannedRow
from ablations.tables.trainings import Training, is_equal_by_construction
from experiments.records.result import MEASURES, Measure, Result
from experiments.records.run import Run
from transformer.config import Config, DataConfig, text_settings
from transformer.formats import counted

_AVERAGED = "averaged_"
_COSTS = (
    *("parameters", "flops", "flops_nominal", "tokens_per_second", "train_seconds"),
    "sentences_per_second",
)
# Columns that the paper's Table 3 does not have.
_SHOWN_IF_CHANGED = {"positions", "vocab_size", "target_language"}


def compute_numbers(folder: TableFolder) -> TableNumbers:
    """All numbers that the report of a table shows."""
    plan, runs = folder.plan, defaultdict[str, list[Run]](list)
    for run in _on_same_data(folder):
        runs[run.row].append(run)
    asked_for = [row for row in plan.rows if row.seeds or row.published]
    trainings = {name: each for each in plan.trainings for name in each.rows}
    rows = [
        _describe(row, plan, runs[row.name], trainings.get(row.name))  # None if published
        for row in asked_for
    ]
    base = next((row for row in rows if row.is_base), None)
    has_seeds = any(len(row.results) > 1 for row in rows)
    measures = plan.compared
    pools: dict[str, Pool] = {}
    for measure in measures:
        pooled = _compute_scores(rows, base, measure, folder.configs, has_seeds=has_seeds)
        if pooled is not None:
            pools[measure.name] = pooled
    shown = plan.shown
    columns = {name for row in rows for name in row.changed}
    if plan.is_compared:
        columns |= COLUMNS.keys() - _SHOWN_IF_CHANGED
    return TableNumbers(
        plan=plan,
        measures=measures,
        rows=rows,
        base=base,
        results=[result for row in rows for result in row.results],
        has_seeds=has_seeds,
        settings=[name for name in shown if name in columns],
        shown=shown,
        pools=pools,
        speed_ups=_speed_ups(rows, base, folder.configs),
        step_times=folder.step_times,
    )


def _on_same_data(folder: TableFolder) -> list[Run]:
    """All runs; one loses its result if most with the same text settings had other data.

    Results that do not record their data are accepted.
    """
    runs = folder.runs()
    settings = {name: text_settings(config) for name, config in folder.configs.items()}
    digests: Mapping[tuple[DataConfig, int], Counter[str]] = defaultdict(Counter)
    for run in runs:
        if run.result is not None and run.result.data_digest:
            digests[settings[run.row]][run.result.data_digest] += 1
    for index, run in enumerate(runs):
        if run.result is not None and run.result.data_digest:
            digest = run.result.data_digest
            [(of_most, count)] = digests[settings[run.row]].most_common(1)
            if digest != of_most:
                others = counted(count, "other run")
                problem = f"its data is {digest}, but that of {others} is {of_most}"
                runs[index] = replace(run, result=None, problem=problem)
    return runs


def _describe(
    row: PlannedRow, plan: Plan, runs: Sequence[Run], training: Training | None
) -> RowNumbers:
    results = [run.result for run in runs if run.result is not None]
    means = {name: _mean(results, name) for name in (*MEASURES, *OTHER_SCORES, *_COSTS)}
    for measure in plan.compared:
        if measure.key:
            values = [*by_seed(results, measure).values()]
            means[measure.name] = estimate(values, measure.scale)
    changed = row.changed(plan.base)
    return RowNumbers(
        name=row.name,
        seeds=row.seeds,
        is_base=row.is_base,
        is_published=row.published,
        is_of_same_text=not row.published and "target_language" not in changed,
        reported=row.reported,
        reference=row.reference,
        training=training,
        settings=row.settings(plan.base),
        changed=changed,
        runs=runs,
        means={name: mean for name, mean in means.items() if mean is not None},
    )


def _mean(results: Sequence[Result], name: str) -> Estimate | None:
    score = name.removeprefix(_AVERAGED)
    values: list[float] = []
    for result in results:
        scored = result.averaged if name.startswith(_AVERAGED) else result
        value: float | None = getattr(scored, score, None)
        if value is not None:
            values.append(value)
    measure = MEASURES.get(score.removeprefix("tokenised_"))
    return estimate(values, measure.scale) if measure else estimate(values)


def _compute_scores(
    rows: Sequence[RowNumbers],
    base: RowNumbers | None,
    measure: Measure,
    configs: Mapping[str, Config],
    *,
    has_seeds: bool,
) -> Pool | None:
    """Compute each row's score by one measure; return the spread pooled over comparable rows."""
    name = measure.name
    values = {row.name: by_seed(row.results, measure) for row in rows}
    alike = {
        row.name: values[row.name]
        for row in rows
        if row.is_of_same_text and has_same_pieces(row, name)
    }
    trainings = {row.name: row.training for row in rows}
    # Runs on a plateau spread differently from runs that learn.
    diverged = {row.name for row in rows if row.diverged}
    sound = {name: own for name, own in alike.items() if name not in diverged}
    pooled = pool(one_of_each(sound, trainings)) if has_seeds else None
    for row in rows:
        difference, is_equal = None, False
        if base is not None and row.name in alike and not row.is_base:
            ours, theirs = values[row.name], values[base.name]
            difference = paired_difference(ours, theirs, measure.scale)
            if difference and row.training == base.training:
                is_equal = is_equal_by_construction(configs[row.name], configs[base.name], name)
                # Rows that were trained one by one have different weights all the same.
                is_equal &= all(ours[seed] == theirs[seed] for seed in ours.keys() & theirs)
                if is_equal:
                    difference = replace(difference, mean=0.0, deviation=None)
            elif difference and pooled and not diverged & {row.name, base.name}:
                difference = pooled.apply(difference)
        row.scores[name] = Score(
            measure=measure,
            ours=row.means.get(name),
            by_seed=values[row.name],
            paper=getattr(row.reported, name, None),
            difference=difference,
            paper_difference=_paper_difference(row, base, name),
            is_equal=is_equal,
        )
    return pooled


def _speed_ups(
    rows: Sequence[RowNumbers], base: RowNumbers | None, configs: Mapping[str, Config]
) -> dict[str, SpeedUp]:
    """The speed-up of each row that has its own training and the base's word-pieces."""
    found: dict[str, SpeedUp] = {}
    for row in rows:
        score = row.scores.get(SPEED_MEASURE)
        if base is None or score is None or score.difference is None:
            continue
        if row.training == base.training or not math.isfinite(score.difference.mean):
            continue
        seeds = score.by_seed.keys() & base.scores[SPEED_MEASURE].by_seed
        of_base = mean_curve(_of_seeds(base, seeds), configs[base.name])
        of_row = mean_curve(_of_seeds(row, seeds), configs[row.name])
        if of_base and of_row and (speed := speed_up(of_base, of_row, score.difference)):
            found[row.name] = speed
    return found


def _of_seeds(row: RowNumbers, seeds: Set[int]) -> list[Run]:
    return [run for run in row.runs if run.result is not None and run.seed in seeds]


def _paper_difference(row: RowNumbers, base: RowNumbers | None, name: str) -> float | None:
    if base is None or row.is_base or not row.is_of_same_text:
        return None
    ours: float | None = getattr(row.reported, name, None)
    of_base: float | None = getattr(base.reported, name, None)
    return None if ours is None or of_base is None else ours - of_base
