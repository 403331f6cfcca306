"""Memory over a long training, and how often its batches bring new shapes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.benchmark.memory import bytes_held
from experiments.benchmark.timing import Row
from experiments.benchmark.training import step_of
from experiments.benchmark.workload import Size, config_of, workload
from transformer.config import Precision, override
from transformer.data.batches import Batch
from transformer.files import read_json, write_json
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision

Product = tuple[str, tuple[torch.Size, ...]]

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
# By then, everything that is cached by shape has been filled.
_SETTLED = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryGrowth:
    """Memory of a process that only trains, on Linux; elsewhere the bytes are 0.

    ``growth`` is the largest memory after step ``settled`` over that at it, minus one.
    ``new_shape_steps`` is the share of steps with a matrix product of a shape that no step before
    had.
    """

    precision: Precision
    steps: int
    settled: int
    bytes_when_settled: int
    peak_bytes: int
    growth: float
    new_shape_steps: float

    def rows(self) -> list[Row]:
        """What is printed."""
        known = self.peak_bytes > 0
        peak = f"{self.peak_bytes / 2**20:,.0f}" if known else ""
        growth = f"{self.growth:.1%}" if known else ""
        return [
            (f"memory, {self.precision}: peak, MiB", peak),
            (f"  growth, step {self.settled:,} to {self.steps:,}", growth),
            ("  steps with a new shape", f"{self.new_shape_steps:.1%}"),
        ]


def measure_growth(size: Size, device: torch.device, steps: int) -> list[MemoryGrowth]:
    """Train ``steps`` steps in fp32, and in the default precision if that is another one.

    Each training has a process of its own.
    """
    precisions: dict[Precision, None] = {"fp32": None}
    precisions[effective_precision("auto", device)] = None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "growth.json"

        def measured(precision: Precision) -> MemoryGrowth:
            words = [size, device.type, precision, str(steps), str(path)]
            subprocess.run([sys.executable, "-m", __spec__.name, *words], check=True)
            return MemoryGrowth(**read_json(path))

        return [measured(precision) for precision in precisions]


def train_watched(
    size: Size, device: torch.device, precision: Precision, steps: int
) -> MemoryGrowth:
    """Train in this process, and watch its memory and its shapes."""
    load = workload(device)
    seen, new, held = set[Product](), 0, list[int]()

    class Watched(TransformerModule):
        def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
            with ProductShapes(seen):  # here: each half of a batch has its own thread
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


class ProductShapes(TorchDispatchMode):
    """Records the matrix products made inside it, in the thread that enters it.

    Those of a backward pass follow from those of the forward pass, so the latter are enough.

    Args:
        seen: each kind of product is added to it with the shapes of its operands
    """

    def __init__(self, seen: set[Product]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        name = str(func).split(".")[1]
        if name in _PRODUCTS:
            shapes = tuple(arg.shape for arg in args if isinstance(arg, Tensor))
            self._seen.add((name, shapes[-2:]))
        return func(*args, **(kwargs or {}))


if __name__ == "__main__":
    size, device_type, precision, steps, output = sys.argv[1:]
    growth = train_watched(
        cast(Size, size), torch.device(device_type), cast(Precision, precision), int(steps)
    )
    write_json(Path(output), asdict(growth))
