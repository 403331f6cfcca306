"""All parts, one after the other, within a limit of time; what was done before is not repeated."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from experiments.gpu_check.parts import Part, parts_of
from experiments.gpu_check.table import markdown
from experiments.gpu_check.worker import Outcome, Worker, about
from experiments.run.files import read_json, write_atomically, write_json
from experiments.run.provenance import commit, versions
from transformer.errors import InputError
from transformer.formats import duration

_FINISHED = ("done", "differs")
# A part is begun with this share of the time that it may take at most.
_ENOUGH = 0.4
_ABOUT_SECONDS = 120.0
_ROOT = Path(__file__).parents[2]


def check_gpu(device_type: str, minutes: float, output: Path) -> int:
    """Do the parts for a kind of device, and write ``output`` and a Markdown table beside it.

    Returns:
        0 if nothing has failed and nothing differs from the CPU, otherwise 1.

    Raises:
        InputError: if there is no GPU, or ``output`` is not to be continued or written.
    """
    if device_type == "cuda" and not torch.cuda.is_available():
        raise InputError("torch finds no GPU here; --device cpu rehearses the check on a CPU")
    if minutes <= 0:
        raise InputError(f"--minutes is {minutes:g}, but must be above 0")
    if output.suffix == ".md":
        raise InputError(f"--output is {output}, but the table goes there: name a .json file")
    return check_parts(parts_of(device_type), device_type, 60 * minutes, output)


def check_parts(parts: Sequence[Part], device_type: str, seconds: float, output: Path) -> int:
    """Do ``parts``; as :func:`check_gpu`."""
    end = time.monotonic() + seconds
    worker = Worker(device_type)
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        found = worker.do(Part("device", _ABOUT_SECONDS, about), _ABOUT_SECONDS)
        if "figures" not in found:
            raise InputError(f"the device cannot be used: {found['error']}")
        made: dict[str, Any] = {**found["figures"], "commit": commit(), "source": _source()}
        made["versions"] = versions()
        outcomes = _finished(output, made)
        for place, part in enumerate(parts, start=1):
            title = f"[{place}/{len(parts)}] {part.name}"
            if part.name in outcomes:
                print(f"{title}: {outcomes[part.name]['state']} before", flush=True)
                continue
            outcome = _within(worker, part, end - time.monotonic(), title)
            outcomes[part.name] = outcome
            now = datetime.now(UTC).isoformat(timespec="seconds")
            figures = {"about": made | {"finished_at": now}, "parts": outcomes}
            write_json(output, figures)
            write_atomically(output.with_suffix(".md"), markdown(figures))
            lines = [*outcome.get("wrong", ()), *filter(None, [outcome.get("error")])]
            print("\n".join([f"    {outcome['state']}", *(f"    {x}" for x in lines)]), flush=True)
    finally:
        worker.stop()
    return _summary(parts, outcomes, output)


def _within(worker: Worker, part: Part, left: float, title: str) -> Outcome:
    if left < _ENOUGH * part.seconds:
        print(f"{title}: {duration(max(0, left))} left, not begun", flush=True)
        return {"state": "not begun", "error": f"only {duration(max(0, left))} were left"}
    limit = min(part.seconds, left)
    print(f"{title}: {duration(limit)} at most, {duration(left)} left in all", flush=True)
    start = time.monotonic()
    outcome = worker.do(part, limit)
    return outcome | {"seconds": time.monotonic() - start}


def _source() -> str:
    """A hash of the code: a copy of the tree has no commit, and a changed tree an older one."""
    paths = (
        path for room in ("transformer", "experiments") for path in (_ROOT / room).rglob("*.py")
    )
    contents = b"".join(path.read_bytes() for path in sorted(paths))
    return hashlib.sha256(contents).hexdigest()[:16]


def _finished(output: Path, made: dict[str, Any]) -> dict[str, Outcome]:
    """What an earlier call has finished; nothing if the code or the device was another."""
    if not output.exists():
        return {}
    earlier = read_json(output)
    if "parts" not in earlier or "about" not in earlier:
        raise InputError(f"{output} is not of this check; choose another --output")
    same = all(earlier["about"].get(key) == made[key] for key in ("device", "torch", "source"))
    if not same:
        kept = output.with_name(f"{output.stem}-{earlier['about'].get('source')}{output.suffix}")
        output.rename(kept)
        print(f"{output} is of other code or another device: kept as {kept}")
        return {}
    return {name: x for name, x in earlier["parts"].items() if x["state"] in _FINISHED}


def _summary(parts: Sequence[Part], outcomes: dict[str, Outcome], output: Path) -> int:
    def named(*states: str) -> list[str]:
        return [part.name for part in parts if outcomes[part.name]["state"] in states]

    wrong, missing = named("differs", "failed"), named("out of time", "not begun")
    for said, names in (("wrong", wrong), ("not finished in time", missing)):
        if names:
            print(f"{said}: {', '.join(names)}")
    if missing:
        print("the same command does what is missing")
    print(f"{output}, {output.with_suffix('.md')}")
    return 1 if wrong else 0
