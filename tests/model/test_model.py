"""Layers against torch's own with copied weights; embeddings; the initial model."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.samples import TINY_MODEL
from transformer.config import ModelConfig
from transformer.kernels.dropout import Dropout
from transformer.model.attention import MultiHeadAttention
from transformer.model.embeddings import Embedding, sinusoids
from transformer.model.encoder_decoder import DecoderLayer, EncoderLayer, PostNorm, Transformer

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


def test_sinusoids_are_the_papers_formula_interleaved_and_exact_far_out() -> None:
    table = sinusoids(99_991, 10)
    assert table.shape == (99_991, 10)
    for row in (0, 1, 7, 100, 99_990):
        for i in range(5):
            angle = row / 10_000 ** (2 * i / 10)
            assert math.isclose(table[row, 2 * i], math.sin(angle), abs_tol=1e-6)
            assert math.isclose(table[row, 2 * i + 1], math.cos(angle), abs_tol=1e-6)


def test_dropout_is_on_the_sum_of_embedding_and_position() -> None:
    module = Transformer(TINY_MODEL).embedding
    tokens = torch.tensor([[5, 60, 7]])
    plain = module(tokens)
    module.dropout.forward = lambda x: 3 * x
    torch.testing.assert_close(module(tokens), 3 * plain)


def test_sinusoids_move_with_the_module() -> None:
    """Otherwise a compiled step would copy them to the GPU."""
    module = Transformer(TINY_MODEL).embedding.to("meta")
    for length in (3, 97):  # the second is beyond the table, which is made anew
        assert module.encode_positions(0, length).is_meta
    weights = Embedding(TINY_MODEL).state_dict()
    module.load_state_dict(weights, assign=True)
    torch.testing.assert_close(module.encode_positions(0, 19), sinusoids(19, 26))
    module.to("meta").to_empty(device="cpu")
    torch.testing.assert_close(module.encode_positions(0, 19), sinusoids(19, 26))


def test_a_table_extended_in_inference_mode_can_be_trained_with() -> None:
    module = Transformer(TINY_MODEL).embedding
    with torch.no_grad():
        module.weight[5] = 0.0
    with torch.inference_mode():
        torch.testing.assert_close(module(torch.full((1, 97), 5))[0], sinusoids(97, 26))
    module(torch.full((1, 53), 5)).sum().backward()
    assert module.weight.grad is not None


def test_threads_that_extend_the_table_at_once_get_all_their_positions() -> None:
    class Raced(Embedding):
        def __setattr__(self, name: str, value: Any) -> None:
            """A shorter table of another thread takes its place."""
            super().__setattr__(name, value[:19] if name == "_sinusoids" else value)

    assert Raced(TINY_MODEL).encode_positions(0, 97).size(0) == 97


def test_dropout_follows_every_sublayer_and_the_embedding() -> None:
    model = Transformer(dataclasses.replace(TINY_MODEL, dropout=0.2))
    rates = [module.p for module in model.modules() if isinstance(module, Dropout)]
    assert rates == [0.2] * (1 + TINY_MODEL.num_layers * (2 + 3))


def test_each_matrix_is_initialised_as_xavier_and_both_tables_normal() -> None:
    """Torch's default has the deviation 1 / sqrt(3 inputs). W_K and W_V are drawn separately."""
    config = ModelConfig(
        vocab_size=401, num_layers=1, d_model=202, d_ff=211, num_heads=7, d_k=31, d_v=29,
        positions="learned", max_positions=199,
    )  # fmt: skip
    for name, parameter in Transformer(config).named_parameters():
        if name.startswith("embedding"):
            table = parameter.detach()[:401] * 202**0.5
            assert abs(table.mean()) < 4.5 / math.sqrt(table.numel())
            assert math.isclose(table.pow(2).mean(), 1.0, rel_tol=0.04)
            assert math.isclose(table.pow(4).mean(), 3.0, rel_tol=0.08)  # kurtosis
        elif parameter.dim() == 2:
            parts = parameter.split([7 * 31, 7 * 29]) if "key_value" in name else [parameter]
            for part in parts:
                bound = math.sqrt(6 / sum(part.shape))
                assert 0.99 * bound < part.abs().max().item() <= bound, name
                assert math.isclose(part.std().item(), bound / 3**0.5, rel_tol=0.02), name
