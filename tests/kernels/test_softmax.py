"""The softmax of powers of two against torch's."""

from __future__ import annotations

import math

import torch

from transformer.kernels.softmax import softmax_base2


def test_it_is_torchs_softmax_of_the_scores_times_ln_2() -> None:
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64, requires_grad=True)
    masked = scores.masked_fill(torch.rand(5, 7) < 0.5, -torch.inf)
    masked = torch.cat([masked, scores[..., :1]], dim=-1)  # at least one score is finite
    expected = torch.softmax(masked * math.log(2.0), -1)
    found = softmax_base2(masked)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(found)
    one, other = (torch.autograd.grad((x * weight).sum(), scores, retain_graph=True)[0]
                  for x in (found, expected))  # fmt: skip
    torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_bf16_is_computed_in_fp32() -> None:
    assert softmax_base2(torch.randn(3, 5, dtype=torch.bfloat16)).dtype == torch.float32
