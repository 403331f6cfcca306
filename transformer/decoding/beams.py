"""Live and finished hypotheses of a beam search."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.config import BOS_ID, EOS_ID


def length_penalty(length: Tensor | int, alpha: float) -> Tensor:
    """((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14), end of sentence included."""
    return ((5.0 + torch.as_tensor(length)) / 6.0) ** alpha


@dataclass
class Beams:
    """The hypotheses for each sentence of a batch.

    Attributes:
        alpha: that of the length penalty
        sentences: ``(batch,)``, the rows of the source that are still searched
        limits, limit_penalties: ``(batch,)``, the greatest length allowed, and its penalty
        scores, last_tokens: ``(batch, beam)``, log-probability and last word-piece, best first
        parents: ``(batch, beam)``, the hypotheses of the step before that these continue
        history: ``(batch, beam, length)``, their word-pieces so far
        finished: ``(batch,)``, how many hypotheses have finished
        best_score: ``(batch,)``, that of the best finished one, after the length penalty
        best_history: ``(batch, longest limit)``, its word-pieces, then ends of sentence
        done: ``(batch,)``, whether the search has ended
    """

    alpha: float
    sentences: Tensor
    limits: Tensor
    limit_penalties: Tensor
    scores: Tensor
    last_tokens: Tensor
    parents: Tensor
    history: Tensor
    finished: Tensor
    best_score: Tensor
    best_history: Tensor
    done: Tensor

    @classmethod
    def start(cls, limits: Tensor, longest: int, beam: int, alpha: float) -> Beams:
        """One live hypothesis per sentence; the others start at -inf.

        Args:
            limits: ``(batch,)``, the length of the longest hypothesis allowed
            longest: the largest of them
        """
        batch, device = limits.size(0), limits.device
        scores = torch.full((batch, beam), -torch.inf, device=device)
        scores[:, 0] = 0.0
        return cls(
            alpha=alpha,
            sentences=torch.arange(batch, device=device),
            limits=limits,
            limit_penalties=length_penalty(limits, alpha),
            scores=scores,
            last_tokens=torch.full((batch, beam), BOS_ID, device=device),
            parents=torch.arange(beam, device=device).expand(batch, -1),
            history=torch.empty((batch, beam, 0), dtype=torch.long, device=device),
            finished=torch.zeros(batch, dtype=torch.long, device=device),
            best_score=torch.full((batch,), -torch.inf, device=device),
            best_history=torch.full((batch, longest), EOS_ID, device=device),
            done=torch.zeros(batch, dtype=torch.bool, device=device),
        )

    def extend(self, log_probabilities: Tensor, tokens: Tensor) -> None:
        """Replace the hypotheses by their best continuations.

        Args:
            log_probabilities: ``(batch, beam, candidates)``, best first
            tokens: the corresponding word-pieces
        """
        beam, candidates = tokens.shape[1:]
        totals = (self.scores.unsqueeze(2) + log_probabilities).flatten(1)
        # Each hypothesis has one end of sentence, so at least beam of the best 2 * beam continue.
        scores, index = totals.topk(min(2 * beam, totals.size(1)), dim=1)
        parents, tokens = index // candidates, tokens.flatten(1).gather(1, index)
        ends, never = tokens.eq(EOS_ID), scores.new_full((), -torch.inf)
        self._finish(torch.where(ends, scores, never)[:, :beam], parents[:, :beam])
        self.scores, alive = torch.where(ends, never, scores).topk(beam, dim=1)
        self.parents, self.last_tokens = parents.gather(1, alive), tokens.gather(1, alive)
        index = self.parents.unsqueeze(2).expand(-1, -1, self.history.size(2))
        history = self.history.gather(1, index)
        self.history = torch.cat([history, self.last_tokens.unsqueeze(2)], dim=2)

    def _finish(self, scores: Tensor, parents: Tensor) -> None:
        """Record hypotheses that finish now; ``scores`` is -inf for all others."""
        length = self.history.size(2) + 1
        score, which = (scores / length_penalty(length, self.alpha)).max(1)
        self.finished += (scores > -torch.inf).sum(1)
        better = (score > self.best_score) & ~self.done
        self.best_score = torch.where(better, score, self.best_score)
        index = parents.gather(1, which.unsqueeze(1)).unsqueeze(2).expand(-1, -1, length - 1)
        self._record(better, self.history.gather(1, index).squeeze(1))

    def _record(self, rows: Tensor, tokens: Tensor) -> None:
        """Make ``tokens`` ``(batch, length)`` the best hypothesis where ``rows`` is true.

        The other rows are written back unchanged, as selecting rows would wait for the device. No
        earlier best hypothesis is longer, so ``tokens`` are still followed by ends of sentence.
        """
        best = self.best_history[:, : tokens.size(1)]
        torch.where(rows.unsqueeze(1), tokens, best, out=best)

    def end(self) -> None:
        """Mark the rows whose search ends; if no hypothesis finished, the best live one wins."""
        length, beam = self.history.size(2), self.scores.size(1)
        best_possible = self.scores[:, 0] / self.limit_penalties
        ended = (self.finished >= beam) | (self.best_score >= best_possible)
        ended = (ended | (length >= self.limits)) & ~self.done
        self._record(ended & self.finished.eq(0), self.history[:, 0])
        self.done |= ended

    def best(self, rows: Tensor) -> list[list[int]]:
        """The best hypothesis of each of ``rows``, without its end of sentence."""
        found: list[list[int]] = self.best_history[rows].tolist()
        return [x[: x.index(EOS_ID)] if EOS_ID in x else x for x in found]

    def select(self, rows: Tensor) -> None:
        """Keep these rows."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                setattr(self, field.name, value.index_select(0, rows))
