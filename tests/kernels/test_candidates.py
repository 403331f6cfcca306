"""The best continuations against log-softmax and top-k of the whole vocabulary."""

from __future__ import annotations

import pytest
import torch

from transformer.config import BOS_ID, PAD_ID
from transformer.kernels.candidates import best_continuations

# Around multiples of a block, with and without a rest; too small for blocks; a real size.
sizes = pytest.mark.parametrize("vocab_size", [8, 64, 65, 1_023, 1_024, 1_025, 1_087, 8_000])


@sizes
@pytest.mark.parametrize("count", [1, 8])
def test_candidates_are_the_top_k_of_the_vocabulary(vocab_size: int, count: int) -> None:
    logits = torch.randn(3, 5, vocab_size) * 4
    expected = logits.clone()
    expected[..., [PAD_ID, BOS_ID]] = -torch.inf
    expected = expected.log_softmax(-1)
    best, ids = best_continuations(logits.clone(), count)
    count_of_all = expected.topk(count)
    assert torch.equal(ids, count_of_all.indices)
    torch.testing.assert_close(best, count_of_all.values)


@sizes
def test_the_best_is_found_at_every_position(vocab_size: int) -> None:
    """Each word-piece in turn is best, the one before it second."""
    logits = torch.zeros(vocab_size, vocab_size)
    row = torch.arange(vocab_size)
    logits[row, row] = 9.0
    logits[row[1:], row[1:] - 1] = 7.0
    _, ids = best_continuations(logits, 2)
    for best in range(4, vocab_size):
        assert ids[best].tolist() == [best, best - 1 if best - 1 not in (PAD_ID, BOS_ID) else 1]


def test_huge_logits_do_not_overflow() -> None:
    logits = torch.full((1, 640), 3e38)
    best, _ = best_continuations(logits, 4)
    torch.testing.assert_close(best, torch.full((1, 4), -torch.tensor(638.0).log().item()))
