"""Compare an engine's translations with our own search's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from experiments.evaluate.trained import TrainedModel
from transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from transformer.decoding import decode_sentences, length_penalty
from transformer.model.encoder_decoder import Transformer

# Scores closer than this differ by the rounding of fp32 alone.
_TIE = 1e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A line, counted from 1, that the engines translate differently; both scores are by our
    model.
    """

    line: int
    ours: float
    theirs: float

    @property
    def tie(self) -> bool:
        return abs(self.ours - self.theirs) < _TIE


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineComparison:
    """The lines among ``lines`` that the engines translate differently, and their seconds."""

    lines: int
    differences: list[Difference]
    seconds: float
    their_seconds: float

    def __str__(self) -> str:
        ties = sum(x.tie for x in self.differences)
        others = len(self.differences) - ties
        listed = [
            f"line {x.line}: {'tie' if x.tie else 'differs'}, "
            f"score {x.ours:.6f} by torch, {x.theirs:.6f} by ctranslate2"
            for x in self.differences
        ]
        summary = (
            f"{self.lines:,} lines: {self.lines - ties - others:,} the same, {ties:,} ties, "
            f"{others:,} differ; torch {self.seconds:.1f} s, ctranslate2 {self.their_seconds:.1f} s"
        )
        return "\n".join([*listed, summary])


def compare_engines(trained: TrainedModel, lines: Sequence[str]) -> EngineComparison:
    """Translate ``lines``, except blank ones, by our own search and by that of ``trained``."""
    model, vocabulary, decode = trained.model, trained.vocabulary, trained.search
    config = trained.experiment.config.decoding
    assert decode is not None
    numbers = [number for number, line in enumerate(lines, start=1) if line.strip()]
    sources = vocabulary.encode([lines[number - 1] for number in numbers])
    started = time.perf_counter()
    theirs = dict(decode(sources))
    between = time.perf_counter()
    ours = dict(decode_sentences(model, sources, config))
    ended = time.perf_counter()
    differences = [
        Difference(
            line=number,
            ours=_hypothesis_score(model, source, ours[row], config),
            theirs=_hypothesis_score(model, source, theirs[row], config),
        )
        for row, (number, source) in enumerate(zip(numbers, sources, strict=True))
        if ours[row] != theirs[row]
    ]
    return EngineComparison(
        lines=len(numbers),
        differences=differences,
        seconds=ended - between,
        their_seconds=between - started,
    )


@torch.inference_mode()
def _hypothesis_score(
    model: Transformer, source: Sequence[int], hypothesis: Sequence[int], config: DecodingConfig
) -> float:
    """log p / length penalty, including the end of sentence unless the length limit was reached."""
    at_limit = len(hypothesis) == len(source) + config.max_extra_length
    tokens = [*hypothesis] if at_limit else [*hypothesis, EOS_ID]
    device = model.embedding.weight.device
    src = torch.tensor([source], device=device)
    tgt = torch.tensor([[BOS_ID, *tokens]], device=device)
    logits = model(src, tgt[:, :-1]).float()
    logits[..., [PAD_ID, BOS_ID]] = -torch.inf
    log_p = logits.log_softmax(-1)
    total = log_p.gather(2, tgt[:, 1:, None]).double().sum().item()
    return total / length_penalty(len(tokens), config.length_penalty).item()
