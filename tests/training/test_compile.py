"""The compiled loss equals the eager one, and is one graph on several devices too."""

from __future__ import annotations

import shutil

import pytest
import torch

from tests.samples import random_sentences, random_targets
from transformer.config import Config, override
from transformer.data.batches import Batch
from transformer.training.module import TransformerModule


def batch_of(src: list[int], tgt: list[int]) -> Batch:
    return Batch(
        src=random_sentences(src), tgt=random_targets(tgt), source_tokens=29, target_tokens=31
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler needs one for C++")
def test_compiled_training_gives_the_same_loss_and_gradients(tiny_config: Config) -> None:
    """With batches of several shapes."""
    config = override(tiny_config, num_layers=1)
    eager, compiled = (TransformerModule(override(config, compile=c)) for c in (False, True))
    compiled.load_state_dict(eager.state_dict())
    for batch in (batch_of([5, 3], [4, 7]), batch_of([7, 2, 4], [2, 3, 9]), batch_of([2], [3])):
        (one, nll), (other, other_nll) = eager.training_loss(batch), compiled.training_loss(batch)
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(nll, other_nll)
        assert not other_nll.requires_grad
        for g, h in zip(
            torch.autograd.grad(one, list(eager.parameters())),
            torch.autograd.grad(other, list(compiled.parameters())),
            strict=True,
        ):
            torch.testing.assert_close(g, h, rtol=1e-4, atol=1e-4)
