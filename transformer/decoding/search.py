"""Greedy and beam search with a key/value cache (section 6.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from transformer.decoding.beams import Beams
from transformer.decoding.incremental import IncrementalDecoder
from transformer.kernels.candidates import best_continuations
from transformer.kernels.threads import map_on_threads
from transformer.model.encoder_decoder import Transformer

# Source word-pieces per batch: few enough for the logits to stay in a CPU's caches, more to fill
# a GPU.
_CPU_TOKENS = 2_048
_GPU_TOKENS = 16_384
# More threads would mostly wait for Python's interpreter.
_MAX_THREADS = 4
# Finished sentences are removed from the batch when they make up this share of it.
_FINISHED_SHARE = 1 / 8
# To look for them a GPU has to end its work first; meanwhile they cost less than that.
_STEPS_BETWEEN_LOOKS = 8


def decode_sentences(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    *,
    tokens_per_batch: int | None = None,
) -> Iterator[tuple[int, list[int]]]:
    """Translate sentences in batches of similar length, longest first.

    On a CPU several batches are decoded concurrently, each on its own thread.

    Args:
        model: put into evaluation mode
        sources: word-piece ids, each ending with the end-of-sentence id
        tokens_per_batch: source word-pieces per batch; None chooses by device. It does not affect
            the result

    Yields:
        The index of a source and its translation without the end-of-sentence id.
    """
    model.eval()
    device = model.embedding.weight.device
    threads = min(torch.get_num_threads(), _MAX_THREADS) if device.type == "cpu" else 1
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


def _batches(lengths: Sequence[int], budget: int, min_batches: int) -> list[list[int]]:
    """Indices in at least ``min_batches`` batches of at most ``budget`` positions, if possible."""
    order = np.argsort([-length for length in lengths], kind="stable").tolist()
    max_size = -(-len(order) // min_batches)
    batches: list[list[int]] = []
    while order:
        size = max(1, min(max_size, budget // max(1, lengths[order[0]])))
        batches.append(order[:size])
        order = order[size:]
    return batches


def _length_limits(src: Tensor, config: DecodingConfig) -> Tensor:
    """The maximal length of a hypothesis, its end included, per row of ``src``."""
    return src.ne(PAD_ID).sum(1) + config.max_extra_length


def greedy_search(model: Transformer, src: Tensor, config: DecodingConfig) -> list[list[int]]:
    """Take the likeliest word-piece at each position; ``config.beam_size`` is ignored.

    Args:
        src: ``(batch, src)``

    Returns:
        For each source, word-piece ids without the end-of-sentence id.
    """
    hypotheses: list[list[int]] = [[] for _ in range(src.size(0))]
    sentences = torch.arange(src.size(0), device=src.device)
    limits = _length_limits(src, config)
    decoder = IncrementalDecoder(model, src)
    tokens = torch.full((src.size(0), 1), BOS_ID, device=src.device)
    while len(sentences) > 0:
        logits = decoder.step(tokens).float()
        logits[..., PAD_ID] = logits[..., BOS_ID] = -torch.inf
        tokens = logits.argmax(-1)
        alive = tokens.squeeze(1).ne(EOS_ID)
        for sentence, token in zip(sentences[alive].tolist(), tokens[alive].tolist(), strict=True):
            hypotheses[sentence] += token
        keep = (alive & (decoder.position < limits)).nonzero().squeeze(1)
        if len(keep) < len(sentences):
            decoder.select_sentences(keep)
            sentences, limits, tokens = sentences[keep], limits[keep], tokens[keep]
    return hypotheses


def beam_search(model: Transformer, src: Tensor, config: DecodingConfig) -> list[list[int]]:
    """The best finished hypothesis by log p / length penalty.

    Probabilities are normalised over all word-pieces but padding and begin-of-sentence.
    A hypothesis finishes when its end of sentence is among the ``beam_size`` best continuations.
    The search for a sentence ends when ``beam_size`` hypotheses have finished, when no live one
    can still win, or at its length limit.

    Args:
        src: ``(batch, src)``

    Returns:
        For each source, word-piece ids without the end-of-sentence id.
    """
    hypotheses: list[list[int]] = [[] for _ in range(src.size(0))]
    decoder = IncrementalDecoder(model, src)
    limits = _length_limits(src, config)
    beams = Beams.start(limits, config.beam_size, config.length_penalty)
    candidates = min(2 * config.beam_size, model.config.vocab_size)
    longest = int(limits.max())
    steps_between_looks = _STEPS_BETWEEN_LOOKS if src.is_cuda else 1
    while len(beams.sentences) > 0:
        logits = decoder.step(beams.last_tokens).float()
        decoder.select_hypotheses(beams.extend(*best_continuations(logits, candidates)))
        beams.end()
        if decoder.position % steps_between_looks != 0 and decoder.position < longest:
            continue
        done = beams.done.cpu()
        if done.sum() >= max(1, _FINISHED_SHARE * len(done)):
            rows, keep = done.nonzero().squeeze(1), (~done).nonzero().squeeze(1)
            rows, keep = rows.to(src.device), keep.to(src.device)
            for sentence, hypothesis in zip(
                beams.sentences[rows].tolist(), beams.best(rows), strict=True
            ):
                hypotheses[sentence] = hypothesis
            decoder.select_sentences(keep)
            beams.select(keep)
    return hypotheses
