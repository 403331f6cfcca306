"""Attention weights of one sentence and its translation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from transformer.config import BOS_ID, EOS_ID, DecodingConfig
from transformer.data.text import normalise
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import Constraint, decode_sentences
from transformer.errors import InputError
from transformer.evaluation.perplexity import MAX_PIECES
from transformer.model.attention import MultiHeadAttention
from transformer.model.encoder_decoder import Transformer, evaluating

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
    constrain: Callable[[Sequence[str]], Constraint] | None = None,
) -> dict[Kind, Attention]:
    """The attention weights for a sentence and its ``translation``.

    With None, the model translates the sentence, limited to what ``constrain`` allows.
    """
    source = _encode(vocabulary, sentence, "the sentence")
    if translation is None:
        allow = constrain and (lambda _: constrain([sentence]))
        ((_, decoded),) = decode_sentences(model, [source], decoding, constrain=allow)
        target = [*decoded, EOS_ID]
    else:
        target = _encode(vocabulary, translation, "the translation")
    read = [BOS_ID, *target[:-1]]
    inputs = [torch.tensor([ids], device=model.embedding.weight.device) for ids in (source, read)]
    weights = attention_weights(model, *inputs)
    pieces = vocabulary.pieces()
    src, tgt, past = ([pieces[i] for i in ids] for ids in (source, target, read))
    return {
        "encoder": Attention(queries=src, keys=src, weights=weights["encoder"]),
        "decoder": Attention(queries=tgt, keys=past, weights=weights["decoder"]),
        "cross": Attention(queries=tgt, keys=src, weights=weights["cross"]),
    }


def _encode(vocabulary: Vocabulary, text: str, name: str) -> list[int]:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # the shell passed other bytes
        raise InputError(f"{name} is not UTF-8") from error
    if not text.strip():
        raise InputError(f"{name} is empty: give one sentence in quotes")
    (pieces,) = vocabulary.encode([normalise(text)])
    if len(pieces) > MAX_PIECES:
        raise InputError(f"{name} has {len(pieces):,} word-pieces: give at most {MAX_PIECES:,}")
    return pieces


@torch.inference_mode()
def attention_weights(model: Transformer, src: Tensor, tgt: Tensor) -> dict[Kind, Tensor]:
    """The weights of all layers and heads, ``(layers, heads, queries, keys)``, for one pair.

    They are computed a second time from the inputs of each attention, so that the model itself need
    not keep them.

    Args:
        src: ``(1, src)``
        tgt: ``(1, tgt)``, beginning with the begin-of-sentence id
    """
    calls: dict[nn.Module, list[Tensor]] = defaultdict(list)  # layers may share a module

    def record(attention: nn.Module, inputs: tuple[Any, ...], _: Tensor) -> None:
        assert isinstance(attention, MultiHeadAttention)
        x, key, value, mask = inputs
        # With the rows of the identity as values, each output is the weights themselves.
        identity = torch.eye(key.size(2), device=key.device, dtype=key.dtype)
        values = identity.expand(*value.shape[:2], -1, -1)
        calls[attention].append(attention.attend(attention.queries(x), key, values, mask)[0].cpu())

    parts: dict[Kind, list[MultiHeadAttention]] = {
        "encoder": [layer.self_attention for layer in model.encoder],
        "decoder": [layer.self_attention for layer in model.decoder],
        "cross": [layer.cross_attention for layer in model.decoder],
    }
    modules = {part for kind in KINDS for part in parts[kind]}
    hooks = [module.register_forward_hook(record) for module in modules]
    try:
        with evaluating(model):
            model.states(src, tgt)
    finally:
        for hook in hooks:
            hook.remove()
    weights: dict[Kind, list[Tensor]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        for part in parts[kind]:
            if not calls[part]:
                name = type(model).__name__
                raise InputError(f"{name} has layers without {kind} attention to show")
            weights[kind].append(calls[part].pop(0))
    return {kind: torch.stack(of_layers) for kind, of_layers in weights.items()}
