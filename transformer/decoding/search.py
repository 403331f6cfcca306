"""Beam search with a key/value cache (section 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor

from transformer.config import PAD_ID, DecodingConfig
from transformer.decoding.beams import Beams
from transformer.decoding.incremental import IncrementalDecoder
from transformer.kernels.candidates import best_continuations
from transformer.kernels.threads import map_on_threads
from transformer.model.encoder_decoder import Transformer, evaluating

# Takes the hypotheses of a search and the log-probabilities of their next word-pieces, ``(batch,
# beam, vocab_size)``, and returns the log-probabilities to use; -inf is never chosen. It is called
# once in each step, so it may keep a state for each hypothesis.
Constraint = Callable[[Beams, Tensor], Tensor]

# Source word-pieces per batch: few enough for the logits to stay in a CPU's caches, or so many that
# a GPU works longer at most steps than Python takes to ask for them.
_CPU_TOKENS = 2_048
_GPU_TOKENS = 65_536
# The keys and values of a batch take no more than this, or than this share of a GPU's memory.
_CPU_CACHE_BYTES = 2 * 2**30
_GPU_CACHE_SHARE = 0.25
# More threads would mostly wait for Python's interpreter.
_MAX_THREADS = 4
# Finished sentences are removed from the batch when they make up this share of it.
_FINISHED_SHARE = 1 / 8
# A GPU is asked for them only after so many steps: the answer waits for all its work.
_STEPS_BETWEEN_LOOKS = 8


def decode_sentences(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    *,
    constrain: Callable[[Sequence[int]], Constraint] | None = None,
) -> Iterator[tuple[int, list[int]]]:
    """Translate sentences in batches of similar length, longest first.

    On a CPU several batches are decoded concurrently, each on its own thread.

    Args:
        model: in evaluation mode until the last translation
        sources: word-piece ids, each ending with the end-of-sentence id
        constrain: called with the indices of the sources of a batch, on the thread of its search

    Yields:
        The index of a source and its translation without the end-of-sentence id.
    """
    device = model.embedding.weight.device
    threads = min(torch.get_num_threads(), _MAX_THREADS) if device.type == "cpu" else 1
    budget = _GPU_TOKENS if device.type == "cuda" else _CPU_TOKENS
    lengths = [len(source) for source in sources]
    batches = _batches(lengths, budget, _positions_in_memory(model), config, threads)

    @torch.inference_mode()
    def decode(rows: Sequence[int]) -> list[list[int]]:
        # By numpy, as torch takes eight times as long to read lists.
        columns = list(zip_longest(*(sources[row] for row in rows), fillvalue=PAD_ID))
        src = torch.from_numpy(np.array(columns, np.int64).T.copy())
        try:
            return beam_search(model, src.to(device), config, constrain and constrain(rows))
        except torch.OutOfMemoryError:  # others may use the same GPU
            if len(rows) == 1:
                raise
        # Not in the handler: until that ends, what the exception interrupted stays in memory.
        half = len(rows) // 2
        return decode(rows[:half]) + decode(rows[half:])

    with evaluating(model):
        for rows, hypotheses in zip(batches, map_on_threads(decode, batches, threads), strict=True):
            yield from zip(rows, hypotheses, strict=True)


def _positions_in_memory(model: Transformer) -> int:
    """The number of positions whose keys and values, of all layers, fit into memory."""
    weights, sizes = model.embedding.weight, model.config
    available = _CPU_CACHE_BYTES
    if weights.is_cuda:
        memory = torch.cuda.get_device_properties(weights.device).total_memory
        available = int(_GPU_CACHE_SHARE * memory)
    widths = len(model.decoder) * sizes.num_heads * (sizes.d_k + sizes.d_v)
    return available // (widths * weights.element_size())


def _batches(
    lengths: Sequence[int], budget: int, room: int, config: DecodingConfig, min_batches: int
) -> list[list[int]]:
    """Indices in at least ``min_batches`` batches of at most ``budget`` positions, if possible.

    Args:
        room: positions of keys and values for each batch
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    max_size = -(-len(order) // min_batches)
    batches: list[list[int]] = []
    while order:
        longest = max(1, lengths[order[0]])
        # Each step adds a position for every hypothesis, and the cache grows by doubling.
        positions = longest + 2 * config.beam_size * (longest + config.max_extra_length)
        size = max(1, min(max_size, budget // longest, room // positions))
        batches.append(order[:size])
        order = order[size:]
    return batches


def beam_search(
    model: Transformer, src: Tensor, config: DecodingConfig, constraint: Constraint | None = None
) -> list[list[int]]:
    """The best finished hypothesis by log p / length penalty; a beam of 1 is greedy search.

    Probabilities are normalised over all word-pieces but padding and begin-of-sentence, before
    ``constraint`` changes them.
    A hypothesis finishes when its end of sentence is among the ``beam_size`` best continuations.
    The search for a sentence ends when ``beam_size`` hypotheses have finished, when no live one
    can still win, or at its length limit.

    Args:
        src: ``(batch, src)``

    Returns:
        For each source, word-piece ids without the end-of-sentence id.
    """
    hypotheses: list[list[int]] = [[] for _ in range(src.size(0))]
    limits = src.ne(PAD_ID).sum(1) + config.max_extra_length  # ends included
    longest = int(limits.max())  # before a GPU has more to do, as this waits for it
    decoder = IncrementalDecoder(model, src)
    beams = Beams.start(limits, longest, config.beam_size, config.length_penalty)
    steps_between_looks = _STEPS_BETWEEN_LOOKS if src.is_cuda else 1
    while len(beams.sentences) > 0:
        extend(decoder, beams, constraint)
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


def extend(decoder: IncrementalDecoder, beams: Beams, constraint: Constraint | None = None) -> None:
    """Make all hypotheses one word-piece longer, without waiting for a GPU."""
    logits = decoder.step(beams.last_tokens).float()
    candidates = min(2 * beams.scores.size(1), logits.size(2))
    constrain = constraint and partial(constraint, beams)
    beams.extend(*best_continuations(logits, candidates, constrain))
    decoder.select_hypotheses(beams.parents)
    beams.end()
