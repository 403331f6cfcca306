"""How much time the workers take, compared with the same runs in one process without them.

``python -m ablations.benchmark DIRECTORY`` is that process.
"""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ablations.costs.measure import measured_speed
from ablations.runner import identity
from ablations.runner.lease import Lease
from ablations.runner.storage import Heartbeat, delete_study, open_storage, refuse_unusable
from ablations.runner.storage_url import URL_VARIABLE, storage_url
from ablations.tables.plan import Plan, claim_plan, load_plan, make_plan
from ablations.tables.scales import QUICK
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE
from experiments.run.measures import valid_scores
from experiments.run.provenance import commit, versions
from experiments.run.results import load_result
from experiments.run.wandb_runs import tracking_mode
from transformer.data.preparation.prepare import prepare
from transformer.errors import InputError
from transformer.files import write_json

_TABLE = Table(name="overhead", title="The overhead of a fleet", base=BASE, rows=(row("base"),))


def measure_overhead(trials: int, minutes: float, storage: str | None, output: Path) -> int:
    """Measure, print the figures and write them to ``output``; the exit code.

    Args:
        trials: runs of the table, one after the other
        minutes: that each of them is to train, about
        storage: URL of the workers' database; None for ``OPTUNA_STORAGE``, else a file

    Raises:
        InputError: for arguments that cannot be used, or an unusable storage.
        ChildProcessError: if a run fails.
    """
    if trials < 1:
        raise InputError(f"--trials is {trials}, but must be at least 1")
    if not (minutes > 0 and math.isfinite(minutes)):
        raise InputError(f"--minutes is {minutes:g}, but must be above 0")
    storage = storage or os.environ.get(URL_VARIABLE) or None
    if storage is not None:
        with open_storage(storage_url(storage, Path()), Heartbeat.from_environment()):
            pass  # refuse it before minutes of calibration
    made = {"commit": commit(), "versions": versions()}  # before anybody edits a file
    plan, device = _calibrate(trials, 60 * minutes)
    steps = plan.base.training.max_steps
    print(f"{trials} runs of {steps:,} steps on {device}, with workers and without", flush=True)
    with tempfile.TemporaryDirectory(prefix="overhead-", ignore_cleanup_errors=True) as folder:
        roots = [Path(folder) / name for name in ("fleet", "reference")]
        plans = [claim_plan(root, plan) for root in roots]
        # Not an argument, since any user can list those and the URL may hold a password.
        environment = os.environ | ({} if storage is None else {URL_VARIABLE: storage})
        with _study_removed(storage, plans[0].study):
            worker = ["ablations", "worker", str(roots[0]), "--workers", "1", "--retries", "0"]
            fleet = _seconds(worker, environment)
        reference = _seconds(["ablations.benchmark", str(roots[1])], environment)
        scores = [[_scores(cell.directory(root)) for cell in plan.cells] for root in roots]
    same = scores[0] == scores[1]
    print(f"with workers {fleet:.1f} s, without {reference:.1f} s: {fleet / reference - 1:+.1%}")
    if not same:
        print("the results are not bitwise the same")
    about = {
        "command": f"python -m ablations benchmark --trials {trials} --minutes {minutes:g}",
        "device": device,
        "storage": "sqlite" if storage is None else storage.partition(":")[0].partition("+")[0],
        "wandb": tracking_mode(),
        "trials": trials,
        "steps": steps,
        "fleet_seconds": fleet,
        "reference_seconds": reference,
        "ratio": fleet / reference,
        "same_results": same,
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    write_json(output, about | made)
    print(output)
    return 0


def _calibrate(trials: int, seconds: float) -> tuple[Plan, str]:
    """A table whose runs take ``seconds`` each, and the device's name."""
    config = QUICK.apply(BASE)
    prepare(config)
    speed = measured_speed({"base": config})
    seconds_per_step = speed.known[0].seconds / config.training.max_steps
    scale = dataclasses.replace(QUICK, max_steps=max(1, round(seconds / seconds_per_step)))
    return make_plan(_TABLE, scale, _TABLE.rows, range(1, trials + 1)), speed.device


def _scores(directory: Path) -> dict[str, float] | None:
    result = load_result(directory)
    return result and valid_scores(result)


def _seconds(arguments: list[str], environment: dict[str, str]) -> float:
    """Run ``python -m ARGUMENTS`` to its end and return how long it took."""
    began = time.monotonic()
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            code = process.wait()
        except BaseException:
            process.terminate()  # a worker then ends its runs
            raise
    if code:
        raise ChildProcessError(f"python -m {' '.join(arguments)} ended with exit code {code}")
    return time.monotonic() - began


@contextmanager
def _study_removed(storage: str | None, study: str) -> Generator[None]:
    """Leave nothing in a database that is not the benchmark's own."""
    try:
        yield
    finally:
        if storage is not None:
            url = storage_url(storage, Path())
            with open_storage(url, Heartbeat.from_environment()) as db, refuse_unusable(url):
                delete_study(db, study)
                Lease(db.engine, study, identity.own_name(), 0.0).delete()


def _run_without_workers(root: Path) -> None:
    from experiments.run.run import run

    plan = load_plan(root)
    for cell in plan.cells:
        run(plan.experiment(cell), cell.directory(root))


if __name__ == "__main__":
    _run_without_workers(Path(sys.argv[1]))
