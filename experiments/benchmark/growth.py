"""Memory over a whole training, and how often its batches bring new shapes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from experiments.benchmark.memory import bytes_held
from experiments.benchmark.shapes import Product, ProductShapes
from experiments.benchmark.training import step_of
from experiments.benchmark.workload import Size, config_of, workload
from experiments.run.files import read_json, write_json
from transformer.config import Precision, from_dict, override
from transformer.data.batches import Batch
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision

# By then the caches of whatever is kept by shape are full.
_SETTLED = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryGrowth:
    """Memory of a process that does nothing but train, on Linux; elsewhere the bytes are 0.

    ``growth`` is the largest memory after step ``settled`` over that at it, less one.
    ``new_shape_steps`` is the share of steps that made a product of a shape that no step before
    had made.
    """

    precision: Precision
    steps: int
    settled: int
    bytes_when_settled: int
    peak_bytes: int
    growth: float
    new_shape_steps: float


def measure_growth(size: Size, device: torch.device, steps: int) -> list[MemoryGrowth]:
    """Train for so many steps in fp32, then in what is used by default where that is another."""
    precisions: dict[Precision, None] = {"fp32": None}
    precisions[effective_precision("auto", device)] = None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "growth.json"

        def measured(precision: Precision) -> MemoryGrowth:
            words = [size, device.type, precision, str(steps), str(path)]
            subprocess.run([sys.executable, "-m", __spec__.name, *words], check=True)
            return from_dict(MemoryGrowth, read_json(path))

        return [measured(precision) for precision in precisions]


def train_watched(
    size: Size, device: torch.device, precision: Precision, steps: int
) -> MemoryGrowth:
    """Train in this process."""
    load = workload(device)
    seen, new, held = set[Product](), 0, list[int]()

    class Watched(TransformerModule):
        def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
            with ProductShapes(seen):  # here, as each half of a batch has a thread of its own
                return super().loss(batch)

    step = step_of(Watched(override(config_of(size, load), precision=precision)).to(device))
    for batch in islice(load.all_batches(device), steps):
        before = len(seen)
        step(batch)
        new += len(seen) > before
        held.append(bytes_held(os.getpid()))
    settled = min(_SETTLED, steps // 2)
    return MemoryGrowth(
        precision=precision,
        steps=steps,
        settled=settled,
        bytes_when_settled=held[settled],
        peak_bytes=max(held),
        growth=max(held[settled:]) / held[settled] - 1 if held[settled] else 0.0,
        new_shape_steps=new / steps,
    )


if __name__ == "__main__":
    size, device_type, precision, steps, output = sys.argv[1:]
    growth = train_watched(
        cast(Size, size), torch.device(device_type), cast(Precision, precision), int(steps)
    )
    write_json(Path(output), asdict(growth))
