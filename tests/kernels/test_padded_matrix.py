"""The padded matrix against the plain one of ``vocab_size`` rows."""

from __future__ import annotations

import pytest
import torch

from transformer.kernels.padded_matrix import PaddedMatrix

D_MODEL = 26


def matrix(vocab_size: int) -> PaddedMatrix:
    module = PaddedMatrix(vocab_size, D_MODEL)
    torch.nn.init.normal_(module.weight[:vocab_size])
    return module


@pytest.mark.parametrize(("vocab_size", "rows"), [(61, 64), (64, 64), (67, 128)])
def test_logits_and_gradients_are_those_of_the_real_rows(vocab_size: int, rows: int) -> None:
    module, states = matrix(vocab_size), torch.randn(3, D_MODEL)
    assert module.weight.shape == (rows, D_MODEL)
    logits = module.logits(states)
    torch.testing.assert_close(logits, states @ module.weight[:vocab_size].T)
    logits.sum().backward()
    assert module.weight.grad is not None and not module.weight.grad[vocab_size:].any()


def test_only_real_rows_are_saved_and_they_fit_no_other_vocabulary() -> None:
    module, other = matrix(61), matrix(61)
    saved = module.state_dict()
    assert torch.equal(saved["weight"], module.weight[:61])
    with torch.no_grad():
        other.weight.fill_(7.0)
    other.load_state_dict(saved)
    assert torch.equal(other.weight, module.weight)
    with pytest.raises(RuntimeError, match="size mismatch"):
        matrix(59).load_state_dict(saved)
