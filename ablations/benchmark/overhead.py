"""The command: a table of short runs, what a fleet adds to them, and where it does."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ablations.benchmark.arm import places
from ablations.benchmark.comparison import Comparison, Interrupted
from ablations.benchmark.figures import Overhead, lines
from ablations.costs.measure import measure
from ablations.runner import identity
from ablations.runner.lease import Lease
from ablations.runner.storage import (
    URL_VARIABLE,
    Patience,
    delete_study,
    open_storage,
    refusing,
    show,
    storage_url,
)
from ablations.tables.plan import Plan, make_plan
from ablations.tables.scales import QUICK
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE
from experiments.run.files import write_json
from experiments.run.provenance import commit, versions
from experiments.run.tracking import tracking_mode
from transformer.data.preparation.prepare import prepare
from transformer.errors import InputError

_TABLE = Table(name="overhead", title="The overhead of a fleet", base=BASE, rows=(row("base"),))


def measure_overhead(trials: int, minutes: float, storage: str | None, output: Path) -> int:
    """Measure, print the figures, and write them to ``output``; the exit code.

    Args:
        trials: runs of the table, one after the other
        minutes: that each of them is to train, about
        storage: URL of the fleet's database; ``OPTUNA_STORAGE``, or a file, if None

    Raises:
        InputError: for what cannot be measured, or a storage that cannot be used.
    """
    if trials < 2:
        raise InputError(f"--trials is {trials}, but must be at least 2: the first is a case apart")
    if not (minutes > 0 and math.isfinite(minutes)):
        raise InputError(f"--minutes is {minutes:g}, but must be above 0")
    together = len({place.core for place in places()}) > 1
    storage = storage or os.environ.get(URL_VARIABLE) or None
    if storage is not None:
        with open_storage(storage_url(storage, Path()), Patience.of_environment()):
            pass  # better now than after the calibration
    plan, device = _calibrate(trials, 60 * minutes)
    steps = plan.base.training.max_steps
    made = {"commit": commit(), "versions": versions()}  # before anybody edits a file
    how = "side by side" if together else "one after the other, as there is one core only"
    print(f"{trials} runs of {steps:,} steps on {device}, {how}", flush=True)
    try:
        found = _compare(plan, storage)
    except Interrupted as interrupted:
        print("stopped; nothing is kept", file=sys.stderr)
        return 128 + interrupted.number
    print("\n".join(lines(found)))
    about = {
        "command": f"python -m ablations benchmark --trials {trials} --minutes {minutes:g}",
        "device": device,
        "cores": len(os.sched_getaffinity(0)),
        "side_by_side": together,
        "storage": "sqlite" if storage is None else storage.partition(":")[0].partition("+")[0],
        "wandb": tracking_mode(),
        "trials": trials,
        "steps": steps,
    }
    ended = {"finished_at": datetime.now(UTC).isoformat(timespec="seconds")}
    output.parent.mkdir(parents=True, exist_ok=True)
    write_json(output, about | dataclasses.asdict(found) | made | ended)
    print(output)
    return 0


def _calibrate(trials: int, seconds: float) -> tuple[Plan, str]:
    """The table with so many steps as take ``seconds``, and the device's name."""
    config = QUICK.apply(BASE)
    prepare(config)
    device, timings = measure({"base": config})
    seconds_per_step = timings[0].seconds / config.training.max_steps
    steps = max(1, round(seconds / seconds_per_step))
    scale = dataclasses.replace(QUICK, max_steps=steps)
    return make_plan(_TABLE, scale, _TABLE.rows, range(1, trials + 1)), device.name


def _compare(plan: Plan, storage: str | None) -> Overhead:
    with tempfile.TemporaryDirectory(prefix="overhead-", ignore_cleanup_errors=True) as folder:
        comparison = Comparison(plan, Path(folder), storage)
        with _swept(storage, comparison.study):
            return comparison.run()


@contextmanager
def _swept(storage: str | None, study: str) -> Generator[None]:
    """Leave nothing of the study in a database that is not the benchmark's own."""
    try:
        yield
    finally:
        if storage is not None:
            url = storage_url(storage, Path())
            try:
                with open_storage(url, Patience.of_environment()) as database, refusing(url):
                    delete_study(database, study)
                    Lease(database.engine, study, identity.own_name(), 0.0).delete()
            except InputError as error:
                print(f"{show(url)} keeps the study {study}: {error}", file=sys.stderr)
