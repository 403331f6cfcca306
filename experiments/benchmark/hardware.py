"""What the hardware could do at best, and how much memory was used."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

# Wide enough to reach the peak, and done in a few hundredths of a second.
_SIDE = {"cpu": 1_024, "cuda": 8_192}


def product_flops(device: torch.device) -> float:
    """Operations of one call of :func:`matrix_product`."""
    return 2.0 * _SIDE[device.type] ** 3


def matrix_product(device: torch.device, dtype: torch.dtype) -> Callable[[object], None]:
    """A large product of two matrices, the best that a program of products can hope for.

    What it is called with is of no account.
    """
    side = _SIDE[device.type]
    left, right = torch.randn(2, side, side, device=device).to(dtype).unbind()
    out = torch.empty_like(left)

    def multiply(_: object) -> None:
        torch.mm(left, right, out=out)

    return multiply


def peak_memory(device: torch.device) -> int | None:
    """Bytes that this process has held at most: of the GPU's memory, or of the machine's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
