"""The speed of a GPU by its name, and the disk space that a run needs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ablations.costs.estimate import checkpoint_bytes
from ablations.costs.speed import Speed, nominal_speed
from experiments.devices import nominal_peak
from tests.samples import tiny
from transformer.config import Config, Corpus, Precision, override
from transformer.errors import InputError
from transformer.evaluation.counts import run_flops
from transformer.training.module import TransformerModule


def speed(name: str, precision: Precision, corpus: Corpus) -> tuple[Speed, Config]:
    config = override(tiny(corpus), precision=precision)
    return nominal_speed(name, {"base": config}), config


@pytest.mark.parametrize(
    ("name", "precision", "device", "chosen", "peak"),
    [
        ("h100", "auto", "H100", "bf16", 989e12),
        ("H100", "fp32", "H100", "fp32", 67e12),
        ("P100", "auto", "P100", "fp32", nominal_peak("P100-SXM2-16GB", "fp32")),
    ],
)
def test_a_gpu_reaches_the_share_of_its_peak_that_the_papers_did(
    files_corpus: Corpus,
    name: str,
    precision: Precision,
    device: str,
    chosen: str,
    peak: float,
) -> None:
    found, config = speed(name, precision, files_corpus)
    assert (found.device, found.precision) == (device, chosen)
    # paper.md: 9.5e17 FLOPs of work where 12 hours of 8 P100 are 3.28e18 at their peak.
    share = run_flops(config) / found.known[0].seconds / peak
    assert share == pytest.approx(9.5e17 / 3.28e18, rel=0.01)


@pytest.mark.parametrize(
    ("name", "precision", "message"),
    [
        ("H10", "auto", "unknown device 'H10': did you mean 'H100'?"),
        ("P100", "bf16", "P100 has no nominal peak in bf16, which these runs use"),
    ],
)
def test_a_device_that_cannot_be_used(
    files_corpus: Corpus, name: str, precision: Precision, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        speed(name, precision, files_corpus)
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
