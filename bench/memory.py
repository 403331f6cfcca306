"""Watch the memory of a long training, and how often a step has new shapes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bench.common import Figures, Size, config_of, make_parser, run, workload
from bench.workload import make_step
from transformer.config import override
from transformer.data.batches import Batch
from transformer.training.module import TransformerModule
from transformer.training.precision import effective_precision

PARSER = make_parser(__doc__, cpu=1_000, cuda=1_000)
PARSER.add_argument("--precision", choices=("auto", "bf16", "fp32"), default="auto")

Matmul = tuple[str, tuple[torch.Size, ...]]

_MATMULS = ("mm", "addmm", "bmm", "baddbmm")
# By then, everything that is cached by shape has been filled.
_SETTLED = 500


def measure_memory(size: Size, device: torch.device, turns: int, precision: str) -> Figures:
    """Train ``turns`` steps; ``growth`` is that of the memory of this process after it has settled.

    The memory is what Linux states.
    """
    load = workload(device)
    seen, new, held = set[Matmul](), 0, list[float]()

    class Watched(TransformerModule):
        def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
            with MatmulShapes(seen):  # here: each half of a batch has its own thread
                return super().loss(batch)

    config = override(config_of(size, load), precision=precision)
    step = make_step(Watched(config).to(device))
    for batch in islice(load.all_batches(device), turns):
        before = len(seen)
        step(batch)
        new += len(seen) > before
        held.append(_resident_mib())
    settled = min(_SETTLED, turns // 2)
    return {
        "precision": effective_precision(config.training.precision, device),
        "steps": turns,
        "share_of_steps_with_new_shapes": new / turns,
        f"mib_at_step_{settled}": held[settled],
        "peak_mib": max(held),
        "growth": max(held[settled:]) / held[settled] - 1,
    }


class MatmulShapes(TorchDispatchMode):
    """Records the matrix products made inside it, in the thread that enters it.

    Those of a backward pass follow from those of the forward pass, so the latter are enough.

    Args:
        seen: each kind of product is added to it with the shapes of its operands
    """

    def __init__(self, seen: set[Matmul]) -> None:
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
        if name in _MATMULS:
            shapes = tuple(arg.shape for arg in args if isinstance(arg, Tensor))
            self._seen.add((name, shapes[-2:]))
        return func(*args, **(kwargs or {}))


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    run(
        "memory",
        PARSER,
        lambda given: measure_memory(given.size, given.device, given.turns, given.precision),
    )
