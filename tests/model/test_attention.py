"""Attention against torch's own and head by head."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


def test_its_gradients_are_those_of_finite_differences() -> None:
    shapes = ((2, 3, 5, 7), (2, 3, 4, 7), (2, 3, 4, 2))
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    mask = torch.zeros(2, 1, 1, 4).masked_fill(
        torch.tensor([[0, 0, 0, 1], [0] * 4])[:, None, None].bool(), -torch.inf
    )
    torch.autograd.gradcheck(scaled_dot_product_attention, (*tensors, mask))


def test_two_keys_by_hand() -> None:
    query = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]])
    key = torch.tensor([[[[math.log(3.0), 5.0, 5.0, 5.0], [0.0, 0.0, 0.0, 0.0]]]])
    value = torch.tensor([[[[1.0, 0.0, 4.0], [0.0, 1.0, 8.0]]]])
    # 2 log 3 / sqrt(4) = log 3 against 0: weights 3/4 and 1/4
    found = scaled_dot_product_attention(query, key, value, torch.zeros(1, 2))
    torch.testing.assert_close(found, torch.tensor([[[[0.75, 0.25, 5.0]]]]))


def test_copied_weights_give_what_torchs_multi_head_attention_gives() -> None:
    d_model = HEADS * D_K
    ours = MultiHeadAttention(d_model, HEADS, D_K, D_K).double()
    theirs = nn.MultiheadAttention(
        d_model, HEADS, bias=False, batch_first=True, dtype=torch.float64
    )
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
        theirs.out_proj.weight.copy_(ours.output.weight)
    x, memory = random(BATCH, QUERIES, d_model), random(BATCH, KEYS, d_model)
    hidden, mask = random_mask(BATCH, KEYS)
    expected, _ = theirs(x, memory, memory, key_padding_mask=hidden, need_weights=False)
    found = ours(x, *ours.keys_values(memory), mask[:, None, None, :])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_each_head_has_rows_of_each_matrix_to_itself() -> None:
    attention = MultiHeadAttention(D_MODEL, HEADS, D_K, D_V).double()
    w_q = attention.query.weight.view(HEADS, D_K, D_MODEL)
    w_k = attention.key_value.weight[: HEADS * D_K].view(HEADS, D_K, D_MODEL)
    w_v = attention.key_value.weight[HEADS * D_K :].view(HEADS, D_V, D_MODEL)
    w_o = attention.output.weight.view(D_MODEL, HEADS, D_V)
    x, memory = random(BATCH, QUERIES, D_MODEL), random(BATCH, KEYS, D_MODEL)
    heads: list[Tensor] = []
    for h in range(HEADS):
        scores = (x @ w_q[h].T) @ (memory @ w_k[h].T).transpose(1, 2) / math.sqrt(D_K)
        heads.append(scores.softmax(-1) @ (memory @ w_v[h].T))
    expected = sum(heads[h] @ w_o[:, h].T for h in range(HEADS))
    found = attention(x, *attention.keys_values(memory), torch.zeros(1))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_w_k_and_w_v_are_initialised_separately() -> None:
    d_model, heads, d_k, d_v = 211, 7, 3, 97
    attention = MultiHeadAttention(d_model, heads, d_k, d_v)
    attention.reset_parameters()
    key, value = attention.key_value.weight.split([heads * d_k, heads * d_v])
    for weight in (attention.query.weight, key, value, attention.output.weight):
        bound = math.sqrt(6 / sum(weight.shape))
        assert 0.99 * bound < weight.abs().max().item() <= bound
        assert math.isclose(weight.std().item(), bound / math.sqrt(3), rel_tol=0.03)
