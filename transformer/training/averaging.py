"""The average of the last checkpoints (section 6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor


def average_weights(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of each weight over checkpoints of Lightning, summed in float64.

    Raises:
        ValueError: if there is no checkpoint.
    """
    if not checkpoints:
        raise ValueError("no checkpoint to average")
    first = _weights(checkpoints[0])
    total = {name: weight.double() for name, weight in first.items()}
    for path in checkpoints[1:]:
        for name, weight in _weights(path).items():
            total[name] += weight.double()
    return {
        name: (weight / len(checkpoints)).to(first[name].dtype) for name, weight in total.items()
    }


def _weights(path: Path) -> dict[str, Tensor]:
    return torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
