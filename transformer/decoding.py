"""Greedy and beam search with a key/value cache (section 6.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from transformer.model.encoder_decoder import DecoderState, Transformer


def length_penalty(length: Tensor | int, alpha: float) -> Tensor:
    """((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14); the end of sentence counts."""
    return ((5.0 + torch.as_tensor(length)) / 6.0) ** alpha


@torch.inference_mode()
def decode_sentences(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
    *,
    batch_size: int = 64,
) -> Iterator[tuple[int, list[int]]]:
    """Translate sentences in batches of similar length, the longest first.

    Args:
        model: is put into evaluation mode
        sources: word-pieces that end with the end-of-sentence id
        batch_size: sentences at a time; the result does not depend on it

    Yields:
        The index of a source and its hypothesis without the end-of-sentence id.
    """
    model.eval()
    device = model.embedding.weight.device
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        src = torch.nn.utils.rnn.pad_sequence(
            [torch.as_tensor(sources[row]) for row in rows], batch_first=True, padding_value=PAD_ID
        ).to(device)
        search = greedy_search if config.beam_size == 1 else beam_search
        yield from zip(rows, search(model, src, config), strict=True)


def greedy_search(model: Transformer, src: Tensor, config: DecodingConfig) -> list[list[int]]:
    """The likeliest word-piece at each position; ``config.beam_size`` is not looked at.

    Args:
        src: ``(batch, src)``

    Returns:
        For each source, word-pieces without the end-of-sentence id.
    """
    hypotheses: list[list[int]] = [[] for _ in range(src.size(0))]
    sentences = torch.arange(src.size(0), device=src.device)
    limits = _length_limits(src, config)
    state = model.start_decoding(src)
    tokens = torch.full((src.size(0), 1), BOS_ID, device=src.device)
    while len(sentences) > 0:
        tokens = _log_probabilities(model, tokens, state).argmax(-1)
        alive = tokens.squeeze(1).ne(EOS_ID)
        for sentence, token in zip(sentences[alive].tolist(), tokens[alive].tolist(), strict=True):
            hypotheses[sentence] += token
        keep = (alive & (state.position < limits)).nonzero().squeeze(1)
        if len(keep) < len(sentences):
            state.select_sentences(keep)
            state.select_hypotheses(keep)
            sentences, limits, tokens = sentences[keep], limits[keep], tokens[keep]
    return hypotheses


def beam_search(model: Transformer, src: Tensor, config: DecodingConfig) -> list[list[int]]:
    """The best of ``config.beam_size`` finished hypotheses by log p / length penalty.

    A hypothesis finishes when the end of sentence is among the best ``beam_size`` continuations.
    A sentence ends, and leaves the batch, when ``beam_size`` of its hypotheses have finished,
    when none that goes on could still win, or at its length limit.

    Args:
        src: ``(batch, src)``

    Returns:
        For each source, word-pieces without the end-of-sentence id.
    """
    hypotheses: list[list[int]] = [[] for _ in range(src.size(0))]
    state = model.start_decoding(src)
    beams = _Beams.start(src, config)
    while len(beams.sentences) > 0:
        tokens, parents = beams.extend(_log_probabilities(model, beams.last_tokens, state))
        beams.last_tokens = tokens
        ended = beams.ended(state.position)
        if ended.any():
            for row in ended.nonzero().squeeze(1).tolist():
                hypotheses[int(beams.sentences[row])] = beams.best(row)
            keep = (~ended).nonzero().squeeze(1)
            state.select_sentences(keep)
            parents = parents[keep]
            beams.select(keep)
        state.select_hypotheses(parents.flatten())
    return hypotheses


def _length_limits(src: Tensor, config: DecodingConfig) -> Tensor:
    return src.ne(PAD_ID).sum(1) + config.max_extra_length


def _log_probabilities(model: Transformer, tokens: Tensor, state: DecoderState) -> Tensor:
    """``(batch, beam, vocab_size)``; padding and the begin of a sentence are never chosen."""
    logits = model.decode_step(tokens, state).float()
    log_probabilities = torch.log_softmax(logits, dim=-1)
    log_probabilities[..., [PAD_ID, BOS_ID]] = -torch.inf
    return log_probabilities


@dataclass
class _Beams:
    """The hypotheses of the sentences that are still searched.

    Shapes: ``sentences``, ``limits``, ``finished``, ``best_score`` ``(batch,)``; ``scores``,
    ``last_tokens`` ``(batch, beam)``; ``history`` ``(batch, beam, length)``; ``best_history``
    ``(batch, longest limit)``.
    """

    config: DecodingConfig
    sentences: Tensor
    limits: Tensor
    scores: Tensor
    last_tokens: Tensor
    history: Tensor
    finished: Tensor
    best_score: Tensor
    best_history: Tensor

    @classmethod
    def start(cls, src: Tensor, config: DecodingConfig) -> _Beams:
        """One living hypothesis for each source; the others of its beam cannot be continued."""
        batch, beam, device = src.size(0), config.beam_size, src.device
        limits = _length_limits(src, config)
        scores = torch.full((batch, beam), -torch.inf, device=device)
        scores[:, 0] = 0.0
        return cls(
            config=config,
            sentences=torch.arange(batch, device=device),
            limits=limits,
            scores=scores,
            last_tokens=torch.full((batch, beam), BOS_ID, device=device),
            history=torch.empty((batch, beam, 0), dtype=torch.long, device=device),
            finished=torch.zeros(batch, dtype=torch.long, device=device),
            best_score=torch.full((batch,), -torch.inf, device=device),
            best_history=torch.full((batch, int(limits.max())), EOS_ID, device=device),
        )

    def extend(self, log_probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """Take the best continuations.

        Returns:
            The new tokens ``(batch, beam)``, and which row of the ``batch * beam`` old
            hypotheses each continues.
        """
        batch, beam, vocab_size = log_probabilities.shape
        totals = (self.scores.unsqueeze(2) + log_probabilities).flatten(1)
        # At most beam of the best 2 * beam end their sentence, so beam of them go on.
        scores, index = totals.topk(min(2 * beam, totals.size(1)), dim=1)
        parents, tokens = index // vocab_size, index % vocab_size
        ends = tokens.eq(EOS_ID)
        self._finish(scores[:, :beam].masked_fill(~ends[:, :beam], -torch.inf), parents[:, :beam])
        self.scores, alive = scores.masked_fill(ends, -torch.inf).topk(beam, dim=1)
        parents, tokens = parents.gather(1, alive), tokens.gather(1, alive)
        length = self.history.size(2)
        history = self.history.gather(1, parents.unsqueeze(2).expand(-1, -1, length))
        self.history = torch.cat([history, tokens.unsqueeze(2)], dim=2)
        first_row = torch.arange(batch, device=parents.device).unsqueeze(1) * beam
        return tokens, first_row + parents

    def _finish(self, scores: Tensor, parents: Tensor) -> None:
        """Note hypotheses that end here; ``scores`` is -inf for those that do not."""
        length = self.history.size(2) + 1
        self.finished += scores.isfinite().sum(1)
        score, which = (scores / length_penalty(length, self.config.length_penalty)).max(1)
        better = score > self.best_score
        self.best_score = torch.where(better, score, self.best_score)
        rows = better.nonzero().squeeze(1)
        self.best_history[rows] = EOS_ID
        self.best_history[rows, : length - 1] = self.history[rows, parents[rows, which[rows]]]

    def ended(self, length: int) -> Tensor:
        """Which sentences are done ``(batch,)``; at its limit the best hypothesis counts as is."""
        alpha = self.config.length_penalty
        best_possible = self.scores[:, 0] / length_penalty(self.limits, alpha)
        at_limit = length >= self.limits
        unfinished = (at_limit & self.finished.eq(0)).nonzero().squeeze(1)
        self.best_history[unfinished, :length] = self.history[unfinished, 0]
        return (
            at_limit | (self.finished >= self.config.beam_size) | (self.best_score >= best_possible)
        )

    def best(self, row: int) -> list[int]:
        """The best hypothesis of a row, up to its end of sentence."""
        tokens: list[int] = self.best_history[row].tolist()
        return tokens[: tokens.index(EOS_ID)] if EOS_ID in tokens else tokens

    def select(self, rows: Tensor) -> None:
        """Keep these rows."""
        for name in (
            "sentences",
            "limits",
            "scores",
            "last_tokens",
            "history",
            "finished",
            "best_score",
            "best_history",
        ):
            setattr(self, name, getattr(self, name)[rows])
