"""What a run leaves on the disk."""

from __future__ import annotations

from pathlib import Path

import torch

from ablations.costs.disk import run_bytes
from tests.samples import tiny
from transformer.config import Corpus
from transformer.training.module import TransformerModule


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
    assert abs(run_bytes(config) / (2 * whole + weights) - 1) < 0.05
