"""Greedy and beam search with a key/value cache (section 6.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from transformer.decoding.beams import Beams, length_limits
from transformer.kernels.candidates import best_continuations
from transformer.kernels.threads import map_on_threads
from transformer.model.encoder_decoder import Transformer

# Word-pieces of the sources of a batch: a CPU's caches hold the logits of so many sentences,
# a GPU is filled by more.
_CPU_TOKENS = 2_048
_GPU_TOKENS = 16_384
# More threads than these would mostly wait for Python's interpreter.
_THREADS_AT_MOST = 4
# Sentences that have ended leave the batch once they are this part of it.
_ENDED_PART = 1 / 8


def decode_sentences(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    *,
    tokens_per_batch: int | None = None,
) -> Iterator[tuple[int, list[int]]]:
    """Translate sentences in batches of similar length, the longest first.

    On a CPU several batches are decoded side by side, each on a thread of its own.

    Args:
        model: is put into evaluation mode
        sources: word-pieces that end with the end-of-sentence id
        tokens_per_batch: of the sources; by the kind of device if None. The result does not
            depend on it

    Yields:
        The index of a source and its hypothesis without the end-of-sentence id.
    """
    model.eval()
    device = model.embedding.weight.device
    threads = min(torch.get_num_threads(), _THREADS_AT_MOST) if device.type == "cpu" else 1
    budget = tokens_per_batch or (_GPU_TOKENS if device.type == "cuda" else _CPU_TOKENS)
    batches = _batches([len(source) for source in sources], budget, threads)
    search = greedy_search if config.beam_size == 1 else beam_search

    @torch.inference_mode()
    def decode(rows: Sequence[int]) -> list[list[int]]:
        src = torch.nn.utils.rnn.pad_sequence(
            [torch.as_tensor(sources[row]) for row in rows], batch_first=True, padding_value=PAD_ID
        )
        return search(model, src.to(device), config)

    for rows, hypotheses in zip(batches, map_on_threads(decode, batches, threads), strict=True):
        yield from zip(rows, hypotheses, strict=True)


def _batches(lengths: Sequence[int], budget: int, at_least: int) -> list[list[int]]:
    """Indices in batches of at most ``budget`` positions, and as many as there are threads."""
    order = np.argsort([-length for length in lengths], kind="stable").tolist()
    most = -(-len(order) // at_least)
    batches: list[list[int]] = []
    while order:
        size = max(1, min(most, budget // max(1, lengths[order[0]])))
        batches.append(order[:size])
        order = order[size:]
    return batches


def greedy_search(model: Transformer, src: Tensor, config: DecodingConfig) -> list[list[int]]:
    """The likeliest word-piece at each position; ``config.beam_size`` is not looked at.

    Args:
        src: ``(batch, src)``

    Returns:
        For each source, word-pieces without the end-of-sentence id.
    """
    hypotheses: list[list[int]] = [[] for _ in range(src.size(0))]
    sentences = torch.arange(src.size(0), device=src.device)
    limits = length_limits(src, config)
    state = model.start_decoding(src)
    tokens = torch.full((src.size(0), 1), BOS_ID, device=src.device)
    while len(sentences) > 0:
        logits = model.decode_step(tokens, state).float()
        logits[..., [PAD_ID, BOS_ID]] = -torch.inf
        tokens = logits.argmax(-1)
        alive = tokens.squeeze(1).ne(EOS_ID)
        for sentence, token in zip(sentences[alive].tolist(), tokens[alive].tolist(), strict=True):
            hypotheses[sentence] += token
        keep = (alive & (state.position < limits)).nonzero().squeeze(1)
        if len(keep) < len(sentences):
            state.select_sentences(keep)
            sentences, limits, tokens = sentences[keep], limits[keep], tokens[keep]
    return hypotheses


def beam_search(model: Transformer, src: Tensor, config: DecodingConfig) -> list[list[int]]:
    """The best of ``config.beam_size`` finished hypotheses by log p / length penalty.

    The probabilities are those of the word-pieces that may be chosen: all but padding and begin.
    A hypothesis finishes when the end of sentence is among the best ``beam_size`` continuations.
    A sentence ends when ``beam_size`` of its hypotheses have finished, when none that goes on
    could still win, or at its length limit.

    Args:
        src: ``(batch, src)``

    Returns:
        For each source, word-pieces without the end-of-sentence id.
    """
    hypotheses: list[list[int]] = [[] for _ in range(src.size(0))]
    state = model.start_decoding(src)
    beams = Beams.start(src, config)
    candidates = min(2 * config.beam_size, model.config.vocab_size)
    ended = 0
    while len(beams.sentences) > 0:
        logits = model.decode_step(beams.last_tokens, state).float()
        state.select_hypotheses(beams.extend(*best_continuations(logits, candidates)))
        for row in beams.end():
            hypotheses[int(beams.sentences[row])] = beams.best(row)
            ended += 1
        if ended >= _ENDED_PART * len(beams.sentences):
            keep = (~beams.done).nonzero().squeeze(1)
            state.select_sentences(keep)
            beams.select(keep)
            ended = 0
    return hypotheses
