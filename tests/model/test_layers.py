"""Layers and sub-layers against torch's own with copied weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.config import ModelConfig
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import DecoderLayer, EncoderLayer, PostNorm

BATCH, SRC, TGT = 3, 5, 11
CONFIG = ModelConfig(
    vocab_size=61, num_layers=1, d_model=14, d_ff=17, num_heads=7, d_k=2, d_v=2, dropout=0.0
)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def source_padding() -> tuple[Tensor, Tensor]:
    hidden = torch.arange(SRC) >= torch.tensor([5, 3, 1])[:, None]
    return hidden, torch.zeros(BATCH, SRC).masked_fill(hidden, -torch.inf)[:, None, None, :]


def causal() -> tuple[Tensor, Tensor]:
    hidden = torch.ones(TGT, TGT, dtype=torch.bool).triu(1)
    return hidden, torch.zeros(TGT, TGT).masked_fill(hidden, -torch.inf)


def torchs_layer(
    ours: EncoderLayer | DecoderLayer, *, activation: str = "relu", is_pre: bool = False
) -> Any:
    """Torch's layer with the weights of ours, after its norms were drawn anew."""
    is_encoder = isinstance(ours, EncoderLayer)
    kind = nn.TransformerEncoderLayer if is_encoder else nn.TransformerDecoderLayer
    theirs: Any = kind(
        CONFIG.d_model, CONFIG.num_heads, CONFIG.d_ff, dropout=0.0, batch_first=True,
        norm_first=is_pre, activation=activation, dtype=torch.float64,
    )  # fmt: skip
    copy_attention(theirs.self_attn, ours.self_attention)
    norms = [ours.self_attention_norm, ours.feed_forward_norm]
    if isinstance(ours, DecoderLayer):
        copy_attention(theirs.multihead_attn, ours.cross_attention)
        norms.insert(1, ours.cross_attention_norm)
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    for number, post in enumerate(norms, 1):
        randomise_norm(post)
        getattr(theirs, f"norm{number}").load_state_dict(post.norm.state_dict())
    return theirs


def copy_attention(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    """Torch's attention has biases, ours has none."""
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
        theirs.in_proj_bias.zero_()
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.zero_()


def randomise_norm(ours: PostNorm) -> None:
    nn.init.uniform_(ours.norm.weight, 0.5, 1.5)
    nn.init.uniform_(ours.norm.bias, -0.5, 0.5)


def test_an_encoder_layer_equals_torchs_post_norm_layer() -> None:
    ours = EncoderLayer(CONFIG).double()
    src = random(BATCH, SRC, CONFIG.d_model)
    hidden, mask = source_padding()
    expected = torchs_layer(ours)(src, src_key_padding_mask=hidden)
    torch.testing.assert_close(ours(src, mask), expected, rtol=1e-12, atol=1e-12)


def test_a_decoder_layer_equals_torchs_post_norm_layer() -> None:
    ours = DecoderLayer(CONFIG).double()
    tgt, memory = random(BATCH, TGT, CONFIG.d_model), random(BATCH, SRC, CONFIG.d_model)
    hidden_future, tgt_mask = causal()
    hidden, memory_mask = source_padding()
    expected = torchs_layer(ours)(
        tgt, memory, tgt_mask=hidden_future, memory_key_padding_mask=hidden
    )
    found = ours(tgt, tgt_mask, (*ours.cross_attention.keys_values(memory), memory_mask))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_dropout_is_on_the_sublayers_output_before_it_is_added() -> None:
    post = PostNorm(CONFIG)
    randomise_norm(post)
    x, sublayer_output = torch.randn(BATCH, SRC, 14), torch.randn(BATCH, SRC, 14)
    mask = torch.rand(BATCH, SRC, 14).round()
    post.dropout.forward = lambda x: x * mask
    expected = F.layer_norm(
        x + sublayer_output * mask, [CONFIG.d_model], post.norm.weight, post.norm.bias
    )
    torch.testing.assert_close(post(x, lambda _: sublayer_output), expected)
