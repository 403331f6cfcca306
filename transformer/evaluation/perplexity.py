"""Perplexity of a model and of frequencies alone, and translation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from transformer.config import PAD_ID, DecodingConfig
from transformer.data.batches import collate
from transformer.data.buckets import batches_by_length
from transformer.data.store import MAX_PIECES, EncodedPairs, Integers
from transformer.data.vocabulary import Vocabulary
from transformer.decoding import Constraint, decode_sentences
from transformer.errors import InputError
from transformer.model.encoder_decoder import Transformer, evaluating
from transformer.training.loss import smoothed_cross_entropy

_PAIRS_AT_ONCE = 100_000  # that are counted: a large corpus does not fit in memory


@dataclass(frozen=True, kw_only=True, slots=True)
class Perplexity:
    """exp of the unsmoothed cross-entropy.

    ``per_token`` is per word-piece, ends of sentences included, as in the paper; ``per_char`` is
    per character of the reference, line ends included, which is comparable between vocabularies.
    """

    per_token: float
    per_char: float

    @classmethod
    def of(cls, nll: float, tokens: int, references: Sequence[str]) -> Perplexity:
        """The perplexity for the sum of the negative log-probabilities of all ``tokens``."""
        characters = sum(len(reference) + 1 for reference in references)
        return cls(per_token=_exp(nll / tokens), per_char=_exp(nll / characters))


@torch.inference_mode()
def perplexity(
    model: Transformer,
    vocabulary: Vocabulary,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    tokens_per_batch: int = 4_096,
) -> Perplexity:
    """Perplexity of the references given the sources, in fp32.

    Pairs with a side of more than ``MAX_PIECES`` are left out, with a warning.

    Raises:
        InputError: if no pair is left.
    """
    device = model.embedding.weight.device
    pairs, rows = scored_pairs(vocabulary, sources, references)
    nll, tokens = 0.0, 0
    for indices in batches_by_length(pairs.lengths[rows], tokens_per_batch):
        batch = collate(pairs, rows[indices]).to(device)
        with evaluating(model):
            states = model.states(batch.src, batch.tgt[:, :-1])
        labels = batch.tgt[:, 1:]
        real = labels.ne(PAD_ID)
        _, batch_nll = smoothed_cross_entropy(
            states[real],
            model.output.weight,
            labels[real],
            smoothing=0.0,
            vocab_size=model.config.vocab_size,
        )
        nll += batch_nll.item()
        tokens += batch.target_tokens
    kept: list[int] = rows.tolist()
    return Perplexity.of(nll, tokens, [references[row] for row in kept])


def scored_pairs(
    vocabulary: Vocabulary, sources: Sequence[str], references: Sequence[str]
) -> tuple[EncodedPairs, Integers]:
    """Pairs of lines as word-pieces, and which of them are scored: no side is overlong.

    Raises:
        InputError: if none is.
    """
    if len(sources) != len(references):
        raise InputError(
            f"{len(sources):,} sources have {len(references):,} references: one for each"
        )
    encoded = [vocabulary.encode(list(lines)) for lines in (sources, references)]
    pairs = EncodedPairs.of(list(zip(*encoded, strict=True)))
    _name_overlong(pairs.lengths.max(axis=1, initial=0).tolist(), 1, "left out of the perplexity")
    rows = pairs.scored()
    if not len(rows):
        raise InputError("there is no perplexity: no line, or none that is short enough")
    return pairs, rows


def unigram_perplexity(train: EncodedPairs, valid: EncodedPairs, vocab_size: int) -> float:
    """Perplexity of the targets of ``valid`` under the frequencies of those of ``train``.

    Ends of sentences count, and the pairs of ``valid`` are those that are scored, as in
    :func:`perplexity`. One is added to each of the ``vocab_size`` counts (Laplace), as ``valid``
    may have word-pieces that ``train`` has not.
    """
    counts = _count_targets(train, np.arange(len(train)), vocab_size) + 1
    scored = _count_targets(valid, valid.scored(), vocab_size)
    log_probabilities = np.log(counts / counts.sum())
    return math.exp(-float(scored @ log_probabilities) / int(scored.sum()))


def _count_targets(pairs: EncodedPairs, rows: Integers, vocab_size: int) -> Integers:
    counts = np.zeros(vocab_size, np.int64)
    for start in range(0, len(rows), _PAIRS_AT_ONCE):
        targets = pairs.joined(rows[start : start + _PAIRS_AT_ONCE], side=1)
        counts += np.bincount(targets, minlength=vocab_size)
    return counts


def translate(
    model: Transformer,
    vocabulary: Vocabulary,
    lines: Sequence[str],
    config: DecodingConfig,
    *,
    constrain: Callable[[Sequence[str]], Constraint] | None = None,
    on_progress: Callable[[int], Any] | None = None,
    first_line: int = 1,
) -> list[str]:
    """Translate lines of text; an empty line stays empty.

    So does, with a warning, a line of more than ``MAX_PIECES``.

    Args:
        constrain: called with the lines of a batch, returns the constraint on their translations
        on_progress: called with the number of lines translated so far; empty ones do not count
        first_line: the number of the first of them in its text, for warnings
    """
    translations = [""] * len(lines)
    rows, sources = translated_lines(vocabulary, lines, first_line)

    def allow(batch: Sequence[int]) -> Constraint:
        assert constrain is not None
        return constrain([lines[rows[index]] for index in batch])

    decoded = decode_sentences(model, sources, config, constrain=constrain and allow)
    for done, (index, hypothesis) in enumerate(decoded, start=1):
        translations[rows[index]] = vocabulary.decode(hypothesis)
        if on_progress is not None:
            on_progress(done)
    return translations


def translated_lines(
    vocabulary: Vocabulary, lines: Sequence[str], first_line: int
) -> tuple[list[int], list[list[int]]]:
    """The indices of the lines that are translated, and their word-pieces.

    Empty lines are left out and, with a warning, overlong ones.
    """
    encoded = vocabulary.encode(list(lines))
    lengths = [len(pieces) for pieces in encoded]
    _name_overlong(lengths, first_line, "left empty")
    rows = [row for row, line in enumerate(lines) if lengths[row] <= MAX_PIECES and line.strip()]
    return rows, [encoded[row] for row in rows]


def _name_overlong(lengths: Sequence[int], first_line: int, fate: str) -> None:
    """Warn of each line of more than ``MAX_PIECES``, with its ``fate``."""
    for number, length in enumerate(lengths, first_line):
        if length > MAX_PIECES:
            warnings.warn(
                f"line {number:,} has {length:,} word-pieces, of which a model takes at most "
                f"{MAX_PIECES:,}: {fate}",
                stacklevel=4,
            )


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
