"""``ablations plan``: from the words of the command line to an estimate."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ablations.costs.basis import find_basis
from ablations.costs.estimate import CorpusCost, Estimate, Places, row_cost
from ablations.costs.past import row_configs
from ablations.runner.machine import Slot, count_cores, slots
from ablations.tables.find import find_scale, load_table, parse_seeds, select_rows
from ablations.tables.plan import make_plan
from transformer.corpus import Corpus
from transformer.errors import InputError


def plan_table(
    table: str,
    scale: str,
    *,
    seeds: str,
    rows: str | None,
    device: str | None,
    devices: int | None,
    workers: int | None,
    devices_per_trial: int,
    trials_per_device: int,
    directory: Path | None,
) -> Estimate:
    """What the table costs on so many devices, or as ``run`` would divide up this machine.

    Raises:
        InputError: for anything that the user gave and that cannot be used.
    """
    declared = load_table(table)
    names = None if rows is None else [name.strip() for name in rows.split(",")]
    chosen, numbers = select_rows(declared, names), parse_seeds(seeds)
    plan = make_plan(declared, find_scale(declared, scale), chosen, numbers)
    here: tuple[Slot, ...] = ()
    if device is None and devices is None:
        here = slots(
            workers,
            devices_per_trial=devices_per_trial,
            trials_per_device=trials_per_device,
            threads=plan.base.training.threads or 1,
        )
    places = _places(devices, workers, devices_per_trial, trials_per_device)
    configs = row_configs(plan)
    wanted = {row.name: configs[row.name] for row in chosen}
    root = directory or Path("runs") / f"{plan.table}-{plan.scale}"
    corpus = plan.base.data.corpus
    expected = _corpus_cost(corpus)
    basis = find_basis(plan, wanted, root, device)
    if here and bool(here[0].devices) == basis.hardware.gpu:
        places = _places_here(here)
    runs = len(chosen) * len(numbers)
    places = dataclasses.replace(places, at_once=min(runs, places.at_once))
    return Estimate(
        title=plan.title,
        scale=plan.scale,
        corpus_name=corpus.name,
        seeds=numbers,
        places=places,
        basis=basis,
        rows=tuple(row_cost(name, wanted[name], basis, places) for name in wanted),
        corpus=expected,
    )


def _places(
    devices: int | None, workers: int | None, devices_per_trial: int, trials_per_device: int
) -> Places:
    """Places on so many devices, of which none need be here."""
    for option, value in (
        ("--devices", devices),
        ("--workers", workers),
        ("--devices-per-trial", devices_per_trial),
        ("--trials-per-device", trials_per_device),
    ):
        if value is not None and value < 1:
            raise InputError(f"{option} is {value}, but must be at least 1")
    count = devices or devices_per_trial
    if devices_per_trial > count:
        raise InputError(
            f"--devices-per-trial is {devices_per_trial}, but there are {count}: "
            "raise --devices, or lower it"
        )
    return Places(
        devices=count,
        devices_per_trial=devices_per_trial,
        at_once=workers or count // devices_per_trial * trials_per_device,
    )


def _places_here(here: tuple[Slot, ...]) -> Places:
    """Places as ``run`` has them on this machine."""
    gpus = {gpu for slot in here for gpu in slot.devices}
    ranks = here[0].ranks
    return Places(
        devices=len(gpus) or min(count_cores(), len(here) * ranks),
        devices_per_trial=ranks,
        at_once=len(here),
    )


def _corpus_cost(corpus: Corpus) -> CorpusCost | None:
    if corpus.pairs is None:
        return None
    from transformer.data.preparation.estimate import cost

    found = cost(corpus, workers=1)
    if found is None:
        return None
    return CorpusCost(
        fetched_bytes=found.fetched_bytes, disk_bytes=found.disk_bytes, seconds=found.seconds
    )
