"""Attention against torch's own and head by head."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.model.attention import MultiHeadAttention, scaled_dot_product_attention

BATCH, HEADS, QUERIES, KEYS, D_K, D_V, D_MODEL = 2, 3, 5, 7, 11, 13, 17


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def random_mask(*shape: int) -> tuple[Tensor, Tensor]:
    """Which keys are hidden, never the first, and the same as an additive mask."""
    hidden = torch.rand(*shape) < 0.5
    hidden[..., 0] = False
    return hidden, torch.zeros(*shape).masked_fill(hidden, -torch.inf)


def test_it_is_torchs_scaled_dot_product_attention() -> None:
    query, key = random(BATCH, HEADS, QUERIES, D_K), random(BATCH, HEADS, KEYS, D_K)
    value = random(BATCH, HEADS, KEYS, D_V)
    hidden, mask = random_mask(BATCH, 1, QUERIES, KEYS)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=~hidden)
    found = scaled_dot_product_attention(query, key, value, mask)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_two_keys_by_hand() -> None:
    query = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]])
    key = torch.tensor([[[[math.log(3.0), 5.0, 5.0, 5.0], [0.0, 0.0, 0.0, 0.0]]]])
    value = torch.tensor([[[[1.0, 0.0, 4.0], [0.0, 1.0, 8.0]]]])
    # 2 log 3 / sqrt(4) = log 3 against 0: weights 3/4 and 1/4
    found = scaled_dot_product_attention(query, key, value, torch.zeros(1, 2))
    torch.testing.assert_close(found, torch.tensor([[[[0.75, 0.25, 5.0]]]]))


def test_w_k_and_w_v_are_initialised_separately() -> None:
    d_model, heads, d_k, d_v = 211, 7, 3, 97
    attention = MultiHeadAttention(d_model, heads, d_k, d_v)
    attention.reset_parameters()
    key, value = attention.key_value.weight.split([heads * d_k, heads * d_v])
    for weight in (attention.query.weight, key, value, attention.output.weight):
        bound = math.sqrt(6 / sum(weight.shape))
        assert 0.99 * bound < weight.abs().max().item() <= bound
        assert math.isclose(weight.std().item(), bound / math.sqrt(3), rel_tol=0.03)
