"""Warnings about likely mistakes, before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ablations.tables.plan import Plan
from experiments.records.progress import RunState
from experiments.records.run import Run
from transformer.config import Config


def warnings_of(plan: Plan, devices: Iterable[str]) -> Iterator[str]:
    """Likely mistakes in a table, a line for each kind.

    Args:
        devices: the devices of the runs that the table's times and speeds come from
    """
    configs = {row.name: row.configure(plan.base) for row in plan.rows if row.seeds}
    yield from warnings_of_runs(configs, devices)
    base = next((row.name for row in plan.rows if row.is_base), "the base")
    names = {plan.base: [base]}
    for name, config in configs.items():
        if name != base:
            names.setdefault(config, []).append(name)
    if alike := [" and ".join(each) for each in names.values() if len(each) > 1]:
        yield (
            f"rows with the same settings at scale {plan.scale}: {'; '.join(alike)}: give them "
            "different values, or keep only one of them"
        )


def stale_rows(runs: Iterable[Run]) -> Iterator[str]:
    """A line for each row with runs that ended with other settings or another class."""
    changes: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.state == RunState.STALE:
            changes.setdefault(run.row, {})[run.problem] = None
    for row, texts in changes.items():
        yield (
            f"row {row} has changed since it was trained ({'; '.join(texts)}), so its stale runs "
            f"are left out: run … --again {row} trains them again"
        )


def warnings_of_runs(configs: Mapping[str, Config], devices: Iterable[str]) -> Iterator[str]:
    """Likely mistakes in configurations (by name) that do not depend on a table."""
    by_share: dict[str, list[str]] = {}
    for name, config in configs.items():
        warm_up, steps = config.training.warmup_steps, config.training.max_steps
        if 3 * warm_up > steps:
            by_share.setdefault(f"{warm_up:,} of {steps:,} steps", []).append(name)
    if by_share:
        shares = "; ".join(
            f"{share} in {'all' if len(names) == len(configs) else ', '.join(names)}"
            for share, names in by_share.items()
        )
        yield (
            f"a warm-up of more than a third of the steps: {shares}: raise max_steps, or lower "
            "warmup_steps"
        )
    counts = Counter(devices)
    if len(counts) > 1:
        known = "; ".join(f"{device} (runs: {count})" for device, count in counts.most_common())
        yield f"times and speeds are from different devices, so their means say little: {known}"
