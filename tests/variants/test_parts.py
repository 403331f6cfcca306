"""Parts of variants against torch's own with copied weights, and formulas written out."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

from tests.model.test_model import BATCH, CONFIG, SRC, source_padding, torchs_layer
from tests.model.test_model import random as random_double
from tests.samples import TINY_MODEL, random_sentences, random_targets, tiny
from transformer.config import ModelConfig
from transformer.data.corpora.declared import WMT14_EN_DE
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import EncoderLayer, FeedForward, PostNorm, Transformer
from transformer.variants import attention, layers, positions
from transformer.variants.modern import ModernTransformer
from transformer.variants.optimizers import AdamW, Muon

HEADS, LENGTH, D_K, D_V = 4, 7, 6, 5
SIZES = ModelConfig(vocab_size=61, d_model=26, num_heads=HEADS, d_k=D_K, d_v=D_V)


def inputs(heads: int = HEADS) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key = torch.randn(2, 1, HEADS, LENGTH, D_K, dtype=torch.float64)
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
    expected = softmax_of(scores, value, mask)
    torch.testing.assert_close(part.attend(query, key, value, mask), expected)


def test_relative_vectors_are_added_to_keys_and_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions.RelativeAttention, "furthest", 3)
    part = positions.RelativeAttention(13, HEADS, D_K, D_V).double()
    query, key, value, mask = inputs()
    scores = torch.empty(1, HEADS, LENGTH, LENGTH, dtype=torch.float64)
    for i in range(LENGTH):
        for j in range(LENGTH):
            vector = key[:, :, j] + part.relative[max(-3, min(3, j - i)) + 3]
            scores[:, :, i, j] = (query[:, :, i] * vector).sum(-1) / math.sqrt(D_K)
    expected = softmax_of(scores, value, mask)
    torch.testing.assert_close(part.attend(query, key, value, mask), expected)


@pytest.mark.parametrize("groups", [1, 2])
def test_grouped_heads_share_keys_and_values(groups: int) -> None:
    part = attention.GroupedAttention(SIZES, groups).double()
    assert part.key_value.out_features == groups * (D_K + D_V)
    query, key, value, mask = inputs(groups)
    found = part.attend(query, key, value, mask)
    for head in range(HEADS):
        group = head * groups // HEADS
        scores = query[:, head] @ key[:, group].transpose(-2, -1) / math.sqrt(D_K)
        torch.testing.assert_close(found[:, head], softmax_of(scores, value[:, group], mask))


def test_normalised_queries_and_keys_are_compared_by_their_cosine() -> None:
    part = attention.QueryKeyNormAttention(SIZES).double()
    assert math.isclose(part.scale.item(), math.log2(64 * 63), rel_tol=1e-6)
    query, key, value, mask = inputs()
    cosine = F.cosine_similarity(query.unsqueeze(3), key.unsqueeze(2), dim=-1)
    expected = softmax_of(part.scale * cosine, value, mask)
    torch.testing.assert_close(part.attend(query, key, value, mask), expected)


def ordered(kind: type[Transformer], src: Tensor, tgt: Tensor) -> Tensor:
    torch.manual_seed(3)
    model = kind(TINY_MODEL)
    model.reset_parameters()
    return model.double().eval()(src, tgt)


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


@pytest.mark.parametrize("kind", [layers.PreNormTransformer, layers.GeluTransformer])
def test_pre_norm_and_gelu_equal_torchs_layers(kind: type[Transformer]) -> None:
    is_pre = kind is layers.PreNormTransformer
    ours = kind(CONFIG).encoder[0].double().eval()
    assert isinstance(ours, EncoderLayer)
    theirs = torchs_layer(ours, activation="relu" if is_pre else "gelu", is_pre=is_pre)
    hidden, mask = source_padding()
    src = random_double(BATCH, SRC, CONFIG.d_model)
    expected = theirs(src, src_key_padding_mask=hidden)
    found = ours(src, mask)
    if is_pre:
        last = ours.feed_forward_norm
        assert isinstance(last, layers.PreNorm) and isinstance(last.last_norm, nn.LayerNorm)
        expected = last.last_norm(expected)
    torch.testing.assert_close(found[~hidden], expected[~hidden])


def test_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    wrapper = layers.RMSNormTransformer(CONFIG).double().eval().encoder[0].self_attention_norm
    norm = wrapper.norm
    assert isinstance(norm, nn.RMSNorm)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    x = random_double(3, CONFIG.d_model)
    doubled = 2 * x
    mean_square = doubled.square().mean(-1, keepdim=True)
    expected = doubled / torch.sqrt(mean_square + 1e-5) * norm.weight
    torch.testing.assert_close(wrapper(x, lambda x: x), expected)


def test_deep_norm_scales_as_the_paper_for_18_layers() -> None:
    """Figure 2 of Wang et al.: 0.81 (18^4 18)^(1/16) = 1.999 and 0.87 / 2.468 = 0.353."""
    config = replace(CONFIG, num_layers=18)
    plain, ours = Transformer(config), layers.DeepNormTransformer(config)
    for model in (plain, ours):
        torch.manual_seed(1)
        model.reset_parameters()
    for stack, theirs, alpha, beta in (
        (ours.encoder, plain.encoder, 1.9989, 0.3526),
        (ours.decoder, plain.decoder, 54**0.25, 216**-0.25),
    ):
        mine, base = stack[0], theirs[0]
        norm = mine.feed_forward_norm
        assert isinstance(norm, layers.DeepNorm) and math.isclose(norm.alpha, alpha, rel_tol=1e-3)
        torch.testing.assert_close(
            mine.feed_forward.inner.weight, base.feed_forward.inner.weight * beta, rtol=1e-3, atol=0
        )
        key, value = mine.self_attention.key_value.weight.chunk(2)
        plain_key, plain_value = base.self_attention.key_value.weight.chunk(2)
        assert torch.equal(key, plain_key)
        torch.testing.assert_close(value, plain_value * beta, rtol=1e-3, atol=0)
    x = random_double(3, 14)
    wrapper = ours.encoder[0].feed_forward_norm.double().eval()
    expected = F.layer_norm((wrapper.alpha + 1) * x, (14,))  # pyright: ignore[reportOperatorIssue]
    torch.testing.assert_close(wrapper(x, lambda x: x), expected)


def test_re_zero_starts_as_the_identity_and_has_no_norm() -> None:
    model = layers.ReZeroTransformer(CONFIG).double().eval()
    assert not any(isinstance(part, nn.LayerNorm) for part in model.modules())
    wrapper = model.encoder[0].feed_forward_norm
    assert isinstance(wrapper, layers.ReZero)
    x = random_double(3, CONFIG.d_model)
    assert torch.equal(wrapper(x, torch.exp), x)
    nn.init.constant_(wrapper.alpha, 0.5)
    torch.testing.assert_close(wrapper(x, torch.exp), x + 0.5 * x.exp())


def test_swiglu_gates_one_half_with_the_other() -> None:
    part = layers.SwiGLU(14, 18).double()
    assert part.inner.weight.shape == (24, 14) and part.inner.bias is None
    x = random_double(3, 14)
    gate, value = x @ part.inner.weight[:12].T, x @ part.inner.weight[12:].T
    torch.testing.assert_close(part(x), (gate * torch.sigmoid(gate) * value) @ part.outer.weight.T)
    bound = math.sqrt(6 / (14 + 12))
    part.reset_parameters()
    assert 0.9 * bound < part.inner.weight.abs().max() <= bound


def test_the_modern_model_has_each_of_its_parts() -> None:
    for kind in (layers.UnbiasedTransformer, ModernTransformer):
        assert not [name for name, _ in kind(CONFIG).named_parameters() if name.endswith("bias")]
    model = ModernTransformer(CONFIG)
    names = {type(part).__name__ for part in model.modules()}
    assert {"PreNorm", "RMSNorm", "SwiGLU", "RotaryAttention", "UnpositionedEmbedding"} <= names
    assert not names & {"LayerNorm", "PostNorm", "FeedForward", "Embedding"}
    assert model.output is not model.embedding
    layer = model.decoder[-1]
    assert type(layer.cross_attention).__name__ == "MultiHeadAttention"
    assert isinstance(layer.feed_forward_norm.norm, nn.RMSNorm)
    assert isinstance(layer.feed_forward, FeedForward) and isinstance(
        layer.feed_forward_norm, PostNorm
    )


def set_gradients(model: Transformer) -> None:
    model.zero_grad()
    model(random_sentences([5, 3]), random_targets([7, 7])).square().sum().backward()


@pytest.mark.parametrize("kind", [AdamW, Muon])
def test_each_parameter_takes_its_own_step(kind: type[AdamW | Muon]) -> None:
    """AdamW decays matrices alone; Muon takes those of the layers, and Adam the rest."""
    module = kind(tiny(WMT14_EN_DE))
    model, config = module.model, module.config.training
    set_gradients(model)
    theirs = copy.deepcopy(model)
    options: dict[str, Any] = {"lr": 0.01, "eps": config.adam_epsilon}
    options["betas"] = config.adam_beta1, config.adam_beta2
    for (name, ours), copied in zip(model.named_parameters(), theirs.parameters(), strict=True):
        assert ours.grad is not None
        copied.grad = ours.grad.clone()
        if kind is AdamW:
            torch.optim.AdamW(
                [copied], weight_decay=0.1 if copied.dim() > 1 else 0.0, **options
            ).step()
        elif name.startswith(("encoder", "decoder")) and copied.dim() == 2:
            torch.optim.Muon(
                [copied], lr=0.01, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
            ).step()
        else:
            optim.Adam([copied], **options).step()
    optimizer = module.optimizer()
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    optimizer.step()
    torch.testing.assert_close(model.state_dict(), theirs.state_dict())
