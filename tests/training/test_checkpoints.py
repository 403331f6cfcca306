"""Averaged checkpoints, and those of earlier versions."""

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


def test_one_checkpoint_is_its_own_average(tmp_path: Path) -> None:
    weight = torch.randn(3, 5)
    assert torch.equal(average_weights([save(tmp_path / "1.ckpt", w=weight)])["w"], weight)


def test_sums_are_in_float64(tmp_path: Path) -> None:
    paths = [
        save(tmp_path / f"{i}.ckpt", w=torch.tensor([x])) for i, x in enumerate([1e8, 3.0, -1e8])
    ]
    assert average_weights(paths)["w"].item() == 1.0


def test_checkpoints_of_earlier_versions_are_averaged_with_current_ones(tmp_path: Path) -> None:
    names = ("add_attention", "add_cross_attention", "add_feed_forward")
    current = ("self_attention_norm", "cross_attention_norm", "feed_forward_norm")
    old, new = (
        save(tmp_path / f"{i}.ckpt", **{f"model.decoder.0.{n}.norm.bias": torch.tensor([i])
                                        for n in parts})
        for i, parts in ((1.0, names), (3.0, current))
    )  # fmt: skip
    average = average_weights([old, new])
    assert average == dict.fromkeys((f"decoder.0.{n}.norm.bias" for n in current), 2.0)


def test_no_checkpoint_is_an_error() -> None:
    with pytest.raises(ValueError, match="no checkpoint"):
        average_weights([])
