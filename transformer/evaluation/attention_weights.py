"""Attention weights of one sentence and its translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from transformer.config import BOS_ID, EOS_ID, DecodingConfig
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import decode_sentences
from transformer.errors import InputError
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import Transformer

Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross")


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """The weights of all heads of one kind, ``(layers, heads, queries, keys)``, on the CPU.

    ``queries`` and ``keys`` are word-pieces, or words. A query of the decoder has the name of the
    word-piece that the model writes there, a key in the decoder that of the word-piece it has read.
    """

    queries: list[str]
    keys: list[str]
    weights: Tensor


def attend(
    model: Transformer,
    vocabulary: Vocabulary,
    sentence: str,
    decoding: DecodingConfig,
    *,
    translation: str | None = None,
) -> dict[Kind, Attention]:
    """The weights of a sentence and ``translation``; None has the model translate it."""
    source = _encode(vocabulary, sentence, "the sentence")
    if translation is None:
        ((_, decoded),) = decode_sentences(model, [source], decoding)
        target = [*decoded, EOS_ID]
    else:
        target = _encode(vocabulary, translation, "the translation")
    read = [BOS_ID, *target[:-1]]
    device = model.embedding.weight.device
    weights = attention_weights(
        model, torch.tensor([source], device=device), torch.tensor([read], device=device)
    )
    pieces = vocabulary.pieces()
    sides: dict[Kind, tuple[list[int], list[int]]] = {
        "encoder": (source, source),
        "decoder": (target, read),
        "cross": (target, source),
    }
    return {
        kind: Attention(
            queries=[pieces[i] for i in queries],
            keys=[pieces[i] for i in keys],
            weights=weights[kind],
        )
        for kind, (queries, keys) in sides.items()
    }


def _encode(vocabulary: Vocabulary, text: str, name: str) -> list[int]:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # the shell passed other bytes
        raise InputError(f"{name} is not UTF-8") from error
    if not text.strip():
        raise InputError(f"{name} is empty: give one sentence in quotes")
    return vocabulary.encode([text])[0]


@torch.inference_mode()
def attention_weights(model: Transformer, src: Tensor, tgt: Tensor) -> dict[Kind, Tensor]:
    """The weights of all layers and heads, ``(layers, heads, queries, keys)``, for one pair.

    They are computed a second time from what enters each attention, so that the model itself need
    not keep them.

    Args:
        src: ``(1, src)``
        tgt: ``(1, tgt)``, beginning with the begin-of-sentence id
    """
    model.eval()
    found: dict[Kind, list[Tensor]] = {kind: [] for kind in KINDS}

    def record(attention: nn.Module, inputs: tuple[Any, ...], _: Tensor) -> None:
        assert isinstance(attention, MultiHeadAttention)
        x, key, _, mask = inputs
        found[kinds[attention]].append(_weights(attention, x, key, mask)[0].cpu())

    kinds: dict[nn.Module, Kind] = {
        module: _kind(name)
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    }
    hooks = [module.register_forward_hook(record) for module in kinds]
    try:
        model.states(src, tgt)
    finally:
        for hook in hooks:
            hook.remove()
    return {kind: torch.stack(layers) for kind, layers in found.items()}


def _kind(name: str) -> Kind:
    if name.endswith("cross_attention"):
        return "cross"
    return "encoder" if name.startswith("encoder") else "decoder"


def _weights(attention: MultiHeadAttention, x: Tensor, key: Tensor, mask: Tensor) -> Tensor:
    """What each head attends to, ``(batch, num_heads, queries, keys)``.

    Values that are the rows of the identity come out as the weights with which they are mixed.
    """
    batch, length, _ = x.shape
    query = attention.query(x).view(batch, length, attention.num_heads, attention.d_k)
    identity = torch.eye(key.size(2), device=key.device, dtype=key.dtype)
    values = identity.expand(*key.shape[:2], -1, -1)
    return attention.attend(query.transpose(1, 2), key, values, mask)
