"""Perplexity of reference translations, and the translation of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from transformer.config import PAD_ID, DecodingConfig
from transformer.data.batches import collate
from transformer.data.buckets import batches_by_length
from transformer.data.store import PairsInMemory
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import decode_sentences
from transformer.model.encoder_decoder import Transformer
from transformer.training.loss import smoothed_cross_entropy

# Like decode_sentences: from sources to (index, translation), in any order.
Decode = Callable[[list[list[int]]], Iterable[tuple[int, list[int]]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Perplexity:
    """exp of the unsmoothed cross-entropy.

    ``per_token`` is per word-piece, ends of sentences included, as in the paper; ``per_char`` is
    per character of the reference, line ends included, which is comparable between vocabularies.
    """

    per_token: float
    per_char: float


@torch.inference_mode()
def perplexity(
    model: Transformer,
    vocabulary: Vocabulary,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    tokens_per_batch: int = 4_096,
) -> Perplexity:
    """Perplexity of the references given the sources, in fp32."""
    model.eval()
    device = model.embedding.weight.device
    pairs = PairsInMemory(vocabulary.encode(list(sources)), vocabulary.encode(list(references)))
    nll, tokens = 0.0, 0
    for indices in batches_by_length(pairs.lengths, tokens_per_batch):
        batch = collate(pairs, indices).to(device)
        states = model.states(batch.src, batch.tgt[:, :-1])
        labels = batch.tgt[:, 1:]
        real = labels.ne(PAD_ID)
        _, batch_nll = smoothed_cross_entropy(
            states[real],
            model.embedding.weight,
            labels[real],
            smoothing=0.0,
            vocab_size=model.config.vocab_size,
        )
        nll += batch_nll.item()
        tokens += batch.target_tokens
    characters = sum(len(line) + 1 for line in references)
    return Perplexity(per_token=_exp(nll / tokens), per_char=_exp(nll / characters))


def translate(
    model: Transformer,
    vocabulary: Vocabulary,
    lines: Sequence[str],
    config: DecodingConfig,
    *,
    decode: Decode | None = None,
    on_progress: Callable[[int], Any] | None = None,
) -> list[str]:
    """Translate lines of text; an empty line stays empty.

    Args:
        decode: a search to use instead of :func:`decode_sentences`
        on_progress: called with the number of lines done so far
    """
    translations = [""] * len(lines)
    rows = [row for row, line in enumerate(lines) if line.strip()]
    sources = vocabulary.encode([lines[row] for row in rows])
    decoded = decode_sentences(model, sources, config) if decode is None else decode(sources)
    for done, (index, hypothesis) in enumerate(decoded, start=1):
        (translations[rows[index]],) = vocabulary.decode([hypothesis])
        if on_progress is not None:
            on_progress(done)
    return translations


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
