"""The command ``run table1``: measure what a directory lacks, then report it."""

from __future__ import annotations

from pathlib import Path

import torch

from ablations.complexity.measure import count_flops, measure_layers
from ablations.complexity.paper import NAMES
from ablations.complexity.paths import path_length, sequential_operations
from ablations.complexity.report import write_layers_report
from ablations.complexity.results import (
    DAMAGED_FILE,
    LIMIT_SECONDS,
    Measurements,
    Point,
    Setting,
    Steps,
    append,
    claim,
    wanted_points,
    wanted_steps,
)
from ablations.report.write import print_page
from experiments.run.devices import default_device, device_name
from experiments.run.ownership import lock_directory
from experiments.run.provenance import commit
from transformer.errors import InputError
from transformer.files import make_directory
from transformer.kernels.threads import torch_threads
from transformer.progress import show_progress

# Of a CPU: what one layer gains by several depends on how torch divides it, not on Table 1.
_THREADS = 1


def run_layers(directory: Path | None, device_type: str | None, *, quick: bool = False) -> int:
    """Measure the layers, then write and print the report; the exit code.

    Args:
        device_type: None for a GPU if there is one
        quick: measure the small sizes only; a later call without it measures the others

    Raises:
        InputError: for a GPU that is not there, or the directory of something else.
    """
    device = torch.device(device_type) if device_type else default_device()
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("--device is cuda, but torch finds no GPU here; use --device cpu")
    root = directory or Path("runs") / f"table1-{device.type}"
    make_directory(root)
    with lock_directory(root, make=False), torch_threads(_THREADS):
        kind = "cuda" if device.type == "cuda" else "cpu"
        setting = Setting(kind=kind, device=device_name(device), torch=torch.__version__)
        found = claim(root, setting)
        if found.damaged:
            print(f"{len(found.damaged)} damaged line(s) set aside in {root / DAMAGED_FILE}")
        print(f"Table 1 in {root}: {setting.device}, fp32", flush=True)
        try:
            _count_steps(root, found)
            _measure(root, found, device, wanted_points(quick))
        except KeyboardInterrupt:
            print("stopped; the same command continues from here")
            raise
        page = write_layers_report(root)
    print_page(page, root)
    return 0


def _count_steps(root: Path, found: Measurements) -> None:
    wanted = [x for x in wanted_steps() if (x.what, x.name, x.n) not in found.steps]
    count = {"sequential": sequential_operations, "path": path_length}
    with show_progress("counting steps", len(wanted)) as show:
        for index, each in enumerate(wanted):
            steps = count[each.what](each.name, each.n)
            record = Steps(what=each.what, name=each.name, n=each.n, steps=steps)
            append(root, record)
            found.add(record)
            show(index + 1)


def _measure(
    root: Path, found: Measurements, device: torch.device, points: list[tuple[int, int]]
) -> None:
    if device.type == "cuda":
        # Products of matrices do without TF32 by default, but convolutions and LSTMs would use it.
        torch.backends.cudnn.allow_tf32 = False
    flops = {(d, n): {name: count_flops(name, n, d) for name in NAMES} for d, n in points}
    weights = {key: _weight(counts) for key, counts in flops.items()}
    done = sum(weights[key] for key in flops if key in found.points)
    with show_progress("timing layers", sum(weights.values()), done) as show:
        for (d, n), counts in flops.items():
            if (d, n) in found.points:
                continue
            predicted = {name: found.predict(name, d, n, counts[name]) for name in NAMES}
            left_out = {name: time for name, time in predicted.items() if time > LIMIT_SECONDS}
            names = [name for name in NAMES if name not in left_out]
            layers = measure_layers(
                names,
                n,
                d,
                device,
                lambda share, base=done, w=weights[d, n]: show(base + share * w),
            )
            point = Point(n=n, d=d, commit=commit(), flops=counts, layers=layers, left_out=left_out)
            append(root, point)
            found.add(point)
            done += weights[d, n]
            show(done)


# FLOPs of a second, roughly; it only serves to estimate the time left.
_SPEED = 2e10


def _weight(flops: dict[str, int]) -> int:
    """About how many milliseconds a point takes; layers that take too long are left out."""
    passes = (count / _SPEED for count in flops.values())
    return round(1000 * (1 + 6 * sum(each for each in passes if each < LIMIT_SECONDS)))
