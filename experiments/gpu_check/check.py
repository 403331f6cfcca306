"""Runs all parts, one after the other, within a time limit; finished ones are not repeated."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import torch

from experiments.command_line import stop_signals
from experiments.gpu_check.findings import Findings
from experiments.gpu_check.parts import Part, parts_of
from experiments.gpu_check.record import Record, problems_of, source_hash
from experiments.gpu_check.worker import Outcome, Worker
from experiments.run.devices import device_name
from experiments.run.provenance import commit, versions
from transformer.errors import InputError
from transformer.formats import duration

_FINISHED = ("done", "differs")
# A part begins only if this share of its time limit is left.
_ENOUGH = 0.4
_DEVICE_SECONDS = 120.0


def check_gpu(device_type: str, minutes: float, output: Path) -> int:
    """Run the parts for a type of device; write ``output`` and a Markdown table next to it.

    Returns:
        0 if nothing has failed and nothing differs from the CPU, otherwise 1.

    Raises:
        InputError: if there is no GPU, or ``output`` cannot be continued or written.
    """
    if device_type == "cuda" and not torch.cuda.is_available():
        raise InputError("torch finds no GPU here; --device cpu rehearses the check on a CPU")
    if not 0 < minutes < math.inf:
        raise InputError(f"--minutes is {minutes:g}, but must be above 0")
    if output.suffix == ".md":
        raise InputError(f"--output is {output}, but the table goes there: name a .json file")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{output.parent} cannot be made: choose another --output") from error
    with _exit_on_signals():
        return run_parts(parts_of(device_type), device_type, 60 * minutes, output)


def run_parts(parts: Sequence[Part], device_type: str, seconds: float, output: Path) -> int:
    """Run ``parts``; as :func:`check_gpu`."""
    deadline = time.monotonic() + seconds
    worker = Worker(device_type)
    try:
        record = Record.open(output, _environment(worker))
        ran_out = {n for n, x in record.outcomes.items() if x["state"] in ("out of time", "failed")}
        # Those that ran out of time come last, when they may take all the time that is left.
        for part in sorted(parts, key=lambda part: part.name in ran_out):
            title = f"[{parts.index(part) + 1}/{len(parts)}] {part.name}"
            earlier = record.outcomes.get(part.name, {})
            if earlier.get("state") in _FINISHED:
                print(f"{title}: {earlier['state']} before", flush=True)
                continue
            left = max(0.0, deadline - time.monotonic())
            if left < _ENOUGH * part.seconds:
                print(f"{title}: not begun, {duration(left)} left", flush=True)
                error = f"only {duration(left)} were left"
                record.outcomes.setdefault(part.name, {"state": "not begun", "error": error})
            else:
                limit = left if part.name in ran_out else min(part.seconds, left)
                print(f"{title}: {duration(left)} left, {duration(limit)} for this", flush=True)
                _run_part(worker, part, limit, record)
            record.save()
    finally:
        worker.stop()
    return _print_summary(parts, record)


def _run_part(worker: Worker, part: Part, limit: float, record: Record) -> None:
    """Run a part and keep its outcome, which is saved after each finding."""
    start = time.monotonic()
    earlier = record.outcomes.get(part.name, {})
    printed = set(earlier.get("rows", ()))

    def keep(outcome: Outcome) -> None:
        record.outcomes[part.name] = outcome | {"seconds": time.monotonic() - start}
        for name, cells in outcome.get("rows", {}).items():
            if name not in printed:
                printed.add(name)
                print(f"    {name:46} {'  '.join(filter(None, cells))}", flush=True)

    def keep_and_save(outcome: Outcome) -> None:
        keep(outcome)
        record.save()

    try:
        keep(worker.run(part, limit, earlier, keep_and_save))
    except BaseException:  # a signal
        outcome = record.outcomes.get(part.name, {})
        keep(outcome | {"state": "stopped", "error": "a signal stopped it"})
        record.save()
        print(f"stopped; {record.path} has what was found, the same command continues")
        raise
    outcome = record.outcomes[part.name]
    for line in (outcome["state"], *problems_of(outcome)):
        print(f"    {line}", flush=True)


def _environment(worker: Worker) -> dict[str, object]:
    """The device and the code, asked in the worker: this process needs no memory of the GPU."""
    part = Part("device", _DEVICE_SECONDS, describe_device)
    found = worker.run(part, part.seconds, {}, lambda _: None)
    if found["state"] != "done":
        raise InputError(f"the device cannot be used: {found['error']}")
    return found["figures"] | {
        "commit": commit(),
        "source": source_hash(),
        "versions": versions(),
    }


def describe_device(device: torch.device, findings: Findings) -> None:
    """The device and the libraries that drive it."""
    findings.figures |= {"device": device_name(device), "torch": torch.__version__}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        findings.figures |= {
            "compute_capability": f"{properties.major}.{properties.minor}",
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }


@contextmanager
def _exit_on_signals() -> Generator[None]:
    """Let a signal end this process by an exception, so that it ends the worker and saves."""

    def exit_process(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    handlers = {x: signal.signal(x, exit_process) for x in stop_signals() if is_main}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _print_summary(parts: Sequence[Part], record: Record) -> int:
    def names(*states: str) -> list[str]:
        return [part.name for part in parts if record.outcomes[part.name]["state"] in states]

    wrong, missing = names("differs", "failed"), names("out of time", "not begun", "stopped")
    if wrong:
        print(f"wrong: {', '.join(wrong)}")
    if missing:
        print(f"not finished in time: {', '.join(missing)}; the same command continues with them")
    print(f"{record.path}, {record.path.with_suffix('.md')}")
    return 1 if wrong else 0
