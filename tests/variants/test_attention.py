"""Attention and positions of variants against formulas written out with loops."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.samples import TINY_MODEL, random_sentences, random_targets
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import Transformer
from transformer.variant import build, variant_name
from transformer.variants import attention, positions

HEADS, LENGTH, D_K, D_V = 4, 7, 6, 5


def inputs(heads: int = HEADS, d_k: int = D_K) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key = torch.randn(2, 1, HEADS, LENGTH, d_k, dtype=torch.float64)
    value = torch.randn(1, HEADS, LENGTH, D_V, dtype=torch.float64)
    mask = torch.zeros(LENGTH, LENGTH, dtype=torch.float64).masked_fill(
        torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), -torch.inf
    )
    return query, key[:, :heads], value[:, :heads], mask


def softmax_of(scores: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(scores + mask, dim=-1) @ value


def test_rotary_scores_are_products_of_complex_numbers_and_see_distances_alone() -> None:
    part = positions.RotaryAttention(13, HEADS, D_K, D_V).double()
    query, key, value, mask = inputs()
    half = D_K // 2
    angle = torch.arange(LENGTH)[:, None] * 10_000 ** (-2 * torch.arange(half) / D_K)
    turn = torch.polar(torch.ones_like(angle, dtype=torch.float64), angle.double())
    q, k = (torch.complex(x[..., :half], x[..., half:]) * turn for x in (query, key))
    scores = (q @ k.conj().transpose(-2, -1)).real / math.sqrt(D_K)
    expected = softmax_of(scores, value, mask)
    torch.testing.assert_close(part.attend(query, key, value, mask), expected, rtol=1e-5, atol=1e-6)


def test_alibi_lowers_scores_with_the_distance_at_slopes_of_powers_of_two() -> None:
    part = positions.AlibiAttention(13, HEADS, D_K, D_V).double()
    query, key, value, mask = inputs()
    scores = query @ key.transpose(-2, -1) / math.sqrt(D_K)
    for head in range(HEADS):
        for i in range(LENGTH):
            for j in range(LENGTH):
                scores[0, head, i, j] -= 2.0 ** (-8 * (head + 1) / HEADS) * abs(i - j)
    torch.testing.assert_close(
        part.attend(query, key, value, mask), softmax_of(scores, value, mask)
    )


def test_relative_vectors_are_added_to_keys_and_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions.RelativeAttention, "furthest", 3)
    part = positions.RelativeAttention(13, HEADS, D_K, D_V).double()
    query, key, value, mask = inputs()
    scores = torch.empty(1, HEADS, LENGTH, LENGTH, dtype=torch.float64)
    for i in range(LENGTH):
        for j in range(LENGTH):
            vector = key[:, :, j] + part.relative[max(-3, min(3, j - i)) + 3]
            scores[:, :, i, j] = (query[:, :, i] * vector).sum(-1) / math.sqrt(D_K)
    torch.testing.assert_close(
        part.attend(query, key, value, mask), softmax_of(scores, value, mask)
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_grouped_heads_share_keys_and_values(groups: int) -> None:
    config = type(TINY_MODEL)(vocab_size=61, d_model=13 * 2, num_heads=HEADS, d_k=D_K, d_v=D_V)
    part = attention.GroupedAttention(config, groups).double()
    assert part.key_value.out_features == groups * (D_K + D_V)
    query, key, value, mask = inputs(groups)
    found = part.attend(query, key, value, mask)
    for head in range(HEADS):
        group = head * groups // HEADS
        scores = query[:, head] @ key[:, group].transpose(-2, -1) / math.sqrt(D_K)
        torch.testing.assert_close(found[:, head], softmax_of(scores, value[:, group], mask))


def test_normalised_queries_and_keys_are_compared_by_their_cosine() -> None:
    config = type(TINY_MODEL)(vocab_size=61, d_model=26, num_heads=HEADS, d_k=D_K, d_v=D_V)
    part = attention.QueryKeyNormAttention(config).double()
    assert math.isclose(part.scale.item(), math.log2(64 * 63), rel_tol=1e-6)
    query, key, value, mask = inputs()
    cosine = F.cosine_similarity(query.unsqueeze(3), key.unsqueeze(2), dim=-1)
    expected = softmax_of(part.scale * cosine, value, mask)
    torch.testing.assert_close(part.attend(query, key, value, mask), expected)


def ordered(kind: type[Transformer], src: Tensor, tgt: Tensor) -> Tensor:
    torch.manual_seed(3)
    config = dataclasses.replace(TINY_MODEL, model=variant_name(kind))
    return build(config).double().eval()(src, tgt)


def test_without_positions_the_encoder_sees_a_bag_of_words() -> None:
    src, tgt = random_sentences([7]), random_targets([5])
    shuffled = src[:, [3, 1, 0, 2, 6, 5, 4]]
    none = positions.NoPositionsTransformer
    torch.testing.assert_close(ordered(none, shuffled, tgt), ordered(none, src, tgt))
    for name in ("Rotary", "Relative", "Alibi"):
        kind = getattr(positions, f"{name}Transformer")
        assert not torch.allclose(ordered(kind, shuffled, tgt), ordered(kind, src, tgt))
        layer = kind(TINY_MODEL).decoder[0]
        assert isinstance(layer.self_attention, getattr(positions, f"{name}Attention"))
        assert type(layer.cross_attention) is MultiHeadAttention
