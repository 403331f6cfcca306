"""GPUs and the share of their peak that training reaches; the disk space that a run needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from ablations.costs.devices import Device, checkpoint_bytes, find_gpu
from experiments.run.devices import nominal_peak
from tests.samples import tiny
from transformer.config import Corpus
from transformer.errors import InputError
from transformer.training.module import TransformerModule

CPU = Device(name="CPU", gpu=False, bf16=False)
GPU = Device(name="GPU", gpu=True, bf16=True)


def test_the_share_of_the_peak_is_assumed_to_be_the_papers(tmp_path: Path) -> None:
    gpu = find_gpu("h100", "auto", tmp_path)
    assert (gpu.name, gpu.peak, gpu.bf16) == ("H100", 989e12, True)
    # paper.md: 9.5e17 FLOPs of work where 12 hours of 8 P100 are 3.28e18 at their peak.
    assert gpu.share == pytest.approx(9.5e17 / 3.28e18, rel=0.01)
    assert gpu.source.startswith("assumed")


def test_a_measured_share_is_preferred(tmp_path: Path) -> None:
    found = {
        "size": "base",
        "device": "NVIDIA H200",
        "train": {"tflops": 197.8, "precision": "bf16"},
    }
    (tmp_path / "benchmark-base-gpu.json").write_text(json.dumps(found))
    gpu = find_gpu("H200", "auto", tmp_path)
    assert gpu.share == pytest.approx(0.2)
    assert gpu.source == "measured, see experiments/results/benchmark-base-gpu.json"
    assert find_gpu("H100", "auto", tmp_path).source.startswith("assumed")


def test_fp32_by_choice_or_for_lack_of_bf16(tmp_path: Path) -> None:
    assert find_gpu("P100", "auto", tmp_path).peak == nominal_peak("P100-SXM2-16GB", "fp32")
    assert find_gpu("H100", "fp32", tmp_path).peak == 67e12


@pytest.mark.parametrize(
    ("name", "precision", "message"),
    [
        ("H10", "auto", "unknown device 'H10': did you mean 'H100'?"),
        ("P100", "bf16", "P100 has no nominal peak in bf16, which these runs use"),
    ],
)
def test_a_device_that_cannot_be_used(
    tmp_path: Path, name: str, precision: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        find_gpu(name, precision, tmp_path)  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == message


def test_a_checkpoint_is_the_weights_and_both_moments(tmp_path: Path, files_corpus: Corpus) -> None:
    config = tiny(files_corpus, vocab_size=4_096, d_model=64)
    module = TransformerModule(config)
    optimizer = module.configure_optimizers()["optimizer"]
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    sizes: list[int] = []
    for content in ([module.state_dict(), optimizer.state_dict()], module.state_dict()):
        path = tmp_path / "checkpoint"
        torch.save(content, path)
        sizes.append(path.stat().st_size)
    whole, weights = sizes
    assert abs(checkpoint_bytes(config) / (2 * whole + weights) - 1) < 0.05
