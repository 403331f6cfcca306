"""The paper's model (sections 3.1 to 3.5) in CTranslate2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec

from experiments.evaluate.exported import open_ctranslate2, search
from experiments.export.weights import (
    attention_weights,
    copied,
    learned_positions,
    output_bias,
)
from transformer.config import BOS_ID, EOS_ID, UNK_ID, DecodingConfig
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import decode_sentences
from transformer.errors import InputError
from transformer.model.attention import MultiHeadAttention
from transformer.model.embeddings import sinusoids
from transformer.model.encoder_decoder import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    PostNorm,
    Transformer,
)

# Rows of the table of positions; CTranslate2 refuses a sentence that needs more.
_POSITIONS = 2_048


def write_ctranslate2_model(
    model: Transformer, vocabulary: Vocabulary, folder: Path, quantization: str | None = None
) -> None:
    """Write ``model`` into an existing folder: weights, vocabulary and CTranslate2's settings.

    Args:
        quantization: CTranslate2's name of a type, such as int8 or float16; None for float32
    """
    if type(model) is not Transformer:
        raise InputError(f"CTranslate2 has no {type(model).__name__}: use --format safetensors")
    spec = TransformerSpec(*_specify(model))
    pieces = vocabulary.pieces()
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    config: Any = spec.config
    config.unk_token, config.eos_token = pieces[UNK_ID], pieces[EOS_ID]
    config.bos_token = config.decoder_start_token = pieces[BOS_ID]
    config.add_source_eos = True
    config.layer_norm_epsilon = 1e-5  # torch's own
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _specify(model: Transformer) -> tuple[Any, Any]:
    """Encoder and decoder with the model's weights."""
    config = model.config
    settings: dict[str, Any] = {"pre_norm": False, "head_dim": max(config.d_k, config.d_v)}
    encoder: Any = TransformerEncoderSpec(config.num_layers, config.num_heads, **settings)
    decoder: Any = TransformerDecoderSpec(config.num_layers, config.num_heads, **settings)
    positions = learned_positions(model.embedding, _POSITIONS)
    if positions is None:
        positions = sinusoids(_POSITIONS, config.d_model)
    pieces = model.embedding.weight[: config.vocab_size]
    for stack, embeddings in ((encoder, encoder.embeddings[0]), (decoder, decoder.embeddings)):
        embeddings.weight = copied(pieces)
        stack.position_encodings.encodings = positions
    decoder.projection.weight = copied(pieces)
    decoder.projection.bias = output_bias(config.vocab_size)
    for layer, target in zip(model.encoder, encoder.layer, strict=True):
        assert isinstance(layer, EncoderLayer)
        _set_attention(target.self_attention, layer.self_attention, layer.self_attention_norm)
        _set_feed_forward(target.ffn, layer.feed_forward, layer.feed_forward_norm)
    for layer, target in zip(model.decoder, decoder.layer, strict=True):
        assert isinstance(layer, DecoderLayer)
        _set_attention(target.self_attention, layer.self_attention, layer.self_attention_norm)
        _set_attention(target.attention, layer.cross_attention, layer.cross_attention_norm)
        _set_feed_forward(target.ffn, layer.feed_forward, layer.feed_forward_norm)
    return encoder, decoder


def _set_attention(target: Any, attention: MultiHeadAttention, add: PostNorm) -> None:
    weights = attention_weights(attention, max(attention.d_k, attention.d_v))
    if len(target.linear) == 2:
        target.linear[0].weight = torch.cat(weights[:3])
    else:
        target.linear[0].weight = weights.query
        target.linear[1].weight = torch.cat(weights[1:3])
    target.linear[-1].weight = weights.output
    target.queries_scale = attention.d_k**-0.5
    target.layer_norm.gamma, target.layer_norm.beta = copied(add.norm.weight), copied(add.norm.bias)


def _set_feed_forward(target: Any, feed_forward: FeedForward, add: PostNorm) -> None:
    pairs = [(target.linear_0, feed_forward.inner), (target.linear_1, feed_forward.outer)]
    for spec, linear in pairs:
        spec.weight, spec.bias = copied(linear.weight), copied(linear.bias)
    target.layer_norm.gamma, target.layer_norm.beta = copied(add.norm.weight), copied(add.norm.bias)


def compare_greedy(
    model: Transformer,
    vocabulary: Vocabulary,
    folder: Path,
    lines: Sequence[str],
    max_extra_length: int,
) -> tuple[int, int]:
    """Count the lines that the export in ``folder`` translates as ``model`` does, and all lines.

    The search is greedy, which is the same in both; with a beam, CTranslate2 has another length
    penalty. A line that is empty or too long for CTranslate2 is left out.
    """
    longest = _POSITIONS - max_extra_length
    sources = [source for source in vocabulary.encode(list(lines)) if 1 < len(source) <= longest]
    greedy = DecodingConfig(beam_size=1, max_extra_length=max_extra_length)
    ours = dict(decode_sentences(model, sources, greedy))
    found = search(open_ctranslate2(folder, "cpu"), vocabulary, sources, greedy)
    return sum(translation == ours[row] for row, translation in found), len(sources)
