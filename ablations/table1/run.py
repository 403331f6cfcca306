"""``run table1``: measure what a directory lacks, then report it."""

from __future__ import annotations

from pathlib import Path

import torch

from ablations.report.write import print_page
from ablations.table1.measure import (
    count_flops,
    measure_layers,
    path_length,
    sequential_operations,
)
from ablations.table1.measurements import Measurements, Point, Steps, claim, wanted_points
from ablations.table1.paper import LIMIT_SECONDS, NAMES, PATHS, STEP_LENGTHS
from ablations.table1.report import write_layers_report
from experiments.devices import default_device, device_name
from experiments.records.ownership import lock_directory
from experiments.records.provenance import commit
from transformer.errors import InputError
from transformer.files import make_directory
from transformer.kernels.threads import torch_threads
from transformer.progress import show_progress

# Of a CPU: how much one layer gains by several depends on how torch divides it, not on Table 1.
_THREADS = 1
_COUNTS = (("sequential", sequential_operations, NAMES), ("path", path_length, tuple(PATHS)))


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
        here = Measurements(kind=kind, device=device_name(device), torch=torch.__version__)
        found = claim(root, here)
        print(f"Table 1 in {root}: {found.device}, fp32", flush=True)
        try:
            _count_steps(root, found)
            _measure(root, found, device, quick=quick)
        except KeyboardInterrupt:
            print("stopped; the same command continues from here")
            raise
        page = write_layers_report(root)
    print_page(page, root)
    return 0


def _count_steps(root: Path, found: Measurements) -> None:
    lacking = [
        (what, count, name, n)
        for what, count, names in _COUNTS
        for name in names
        for n in STEP_LENGTHS
        if n not in found.counts(what, name)
    ]
    with show_progress("counting steps", len(lacking)) as show:
        for index, (what, count, name, n) in enumerate(lacking, start=1):
            found.steps.append(Steps(what=what, name=name, n=n, steps=count(name, n)))
            found.save(root)
            show(index)


def _measure(root: Path, found: Measurements, device: torch.device, *, quick: bool) -> None:
    if device.type == "cuda":
        # Products of matrices do without TF32 by default, but convolutions and LSTMs would use it.
        torch.backends.cudnn.allow_tf32 = False
    lacking = [(d, n) for d, n in wanted_points(quick) if found.lacks(d, n)]
    done = 0  # a point takes about as long as it has numbers
    with show_progress("timing layers", sum(d * n for d, n in lacking)) as show:
        for d, n in lacking:
            flops = {name: count_flops(name, n, d) for name in NAMES}
            expected = {name: found.predict(name, d, n, flops[name]) for name in NAMES}
            left_out = {name: time for name, time in expected.items() if time > LIMIT_SECONDS}
            layers = measure_layers([x for x in NAMES if x not in left_out], n, d, device)
            found.add(
                Point(n=n, d=d, commit=commit(), flops=flops, layers=layers, left_out=left_out)
            )
            found.save(root)
            show(done := done + d * n)
