"""``ablations plan``: from the words of the command line to an estimate."""

from __future__ import annotations

from pathlib import Path

from ablations.costs.basis import find_basis
from ablations.costs.estimate import CorpusCost, Estimate, row_cost
from ablations.costs.past import row_configs
from ablations.plan import make_plan
from ablations.tables import find_scale, load_table, parse_seeds, select_rows
from transformer.corpus import Corpus
from transformer.errors import InputError


def plan_table(
    table: str,
    scale: str,
    *,
    seeds: str,
    rows: str | None,
    devices: int,
    devices_per_trial: int,
    device: str | None,
    directory: Path | None,
) -> Estimate:
    """What the table costs on so many devices.

    Raises:
        InputError: for anything that the user gave and that cannot be used.
    """
    declared = load_table(table)
    names = None if rows is None else [name.strip() for name in rows.split(",")]
    chosen, numbers = select_rows(declared, names), parse_seeds(seeds)
    plan = make_plan(declared, find_scale(declared, scale), chosen, numbers)
    for option, value in (("--devices", devices), ("--devices-per-trial", devices_per_trial)):
        if value < 1:
            raise InputError(f"{option} is {value}, but must be at least 1")
    if devices_per_trial > devices:
        raise InputError(
            f"--devices-per-trial is {devices_per_trial}, but there are {devices}: "
            "raise --devices, or lower it"
        )
    configs = row_configs(plan)
    wanted = {row.name: configs[row.name] for row in chosen}
    root = directory or Path("runs") / f"{plan.table}-{plan.scale}"
    corpus = plan.base.data.corpus
    expected = _corpus_cost(corpus)
    basis = find_basis(plan, wanted, root, device)
    return Estimate(
        title=plan.title,
        scale=plan.scale,
        corpus_name=corpus.name,
        seeds=numbers,
        devices=devices,
        devices_per_trial=devices_per_trial,
        basis=basis,
        rows=tuple(row_cost(name, wanted[name], basis, devices_per_trial) for name in wanted),
        corpus=expected,
    )


def _corpus_cost(corpus: Corpus) -> CorpusCost | None:
    if corpus.pairs is None:
        return None
    from transformer.data.preparation.announcement import cost

    found = cost(corpus, workers=1)
    if found is None:
        return None
    return CorpusCost(
        fetched_bytes=found.fetched_bytes, disk_bytes=found.disk_bytes, seconds=found.seconds
    )
