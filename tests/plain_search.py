"""The plain definition of ``beam_search``, for one sentence, with lists."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from transformer.config import EOS_ID, DecodingConfig

Hypothesis = tuple[int, ...]
Scored = tuple[float, Hypothesis]


def penalised(total: float, length: int, alpha: float) -> float:
    """log p over the length penalty."""
    return total / ((5 + length) / 6) ** alpha


def plain_beam_search(
    log_probabilities: Callable[[list[Hypothesis]], Tensor], config: DecodingConfig, limit: int
) -> Hypothesis:
    """``log_probabilities`` are of the word-piece after each hypothesis, ``(…, vocab_size)``."""
    beam, alpha = config.beam_size, config.length_penalty
    alive: list[Scored] = [(0.0, ())]
    finished: list[Scored] = []
    for length in range(1, limit + 1):
        candidates: list[Scored] = []
        following = log_probabilities([prefix for _, prefix in alive]).tolist()
        for (total, prefix), row in zip(alive, following, strict=True):
            candidates += [
                (total + p, (*prefix, token)) for token, p in enumerate(row) if p > float("-inf")
            ]
        candidates.sort(reverse=True)
        finished += [
            (penalised(total, length, alpha), tokens[:-1])
            for total, tokens in candidates[:beam]
            if tokens[-1] == EOS_ID
        ]
        alive = [c for c in candidates if c[1][-1] != EOS_ID][:beam]
        best_possible = penalised(alive[0][0], limit, alpha)
        if len(finished) >= beam or (finished and max(finished)[0] >= best_possible):
            break
    return max(finished)[1] if finished else alive[0][1]
