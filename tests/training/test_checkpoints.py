"""Averaged checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from transformer.training.checkpoints import average_weights


def save(path: Path, **weights: Tensor) -> Path:
    torch.save({"state_dict": weights, "global_step": 7}, path)
    return path


def test_each_weight_is_the_mean_of_its_checkpoints(tmp_path: Path) -> None:
    paths = [
        save(tmp_path / f"{i}.ckpt", a=torch.full((2, 3), float(i)), b=torch.tensor([1.0, -i]))
        for i in (1, 2, 6)
    ]
    average = average_weights(paths)
    assert average.keys() == {"a", "b"}
    assert average["a"].tolist() == [[3.0] * 3] * 2
    assert average["b"].tolist() == [1.0, -3.0]
    assert average["a"].dtype == torch.float32


def test_sums_are_in_float64(tmp_path: Path) -> None:
    paths = [
        save(tmp_path / f"{i}.ckpt", w=torch.tensor([x])) for i, x in enumerate([1e8, 3.0, -1e8])
    ]
    assert average_weights(paths)["w"].item() == 1.0


def test_no_checkpoint_is_an_error() -> None:
    with pytest.raises(ValueError, match="no checkpoint"):
        average_weights([])
