"""Layers of variants against torch's own with copied weights, and formulas written out."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.model.test_layers import BATCH, CONFIG, SRC, source_padding, torchs_layer
from tests.model.test_layers import random as random_double
from transformer.model.encoder_decoder import EncoderLayer, FeedForward, PostNorm, Transformer
from transformer.variants import layers
from transformer.variants.modern import ModernTransformer


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
    config = type(CONFIG)(
        vocab_size=61, num_layers=18, d_model=14, d_ff=17, num_heads=7, d_k=2, d_v=2
    )
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
    assert model.output is not model.embedding and hasattr(model, "optimizer")
    layer = model.decoder[-1]
    assert type(layer.cross_attention).__name__ == "MultiHeadAttention"
    assert isinstance(layer.feed_forward_norm.norm, nn.RMSNorm)
    assert isinstance(layer.feed_forward, FeedForward) and isinstance(
        layer.feed_forward_norm, PostNorm
    )
