"""Scores as printed lines."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.records.result import Averaged, Result
from transformer.config import to_dict

_SIGNATURES = {
    "BLEU": "bleu_signature",
    "tokenised BLEU": "tokenised_bleu_signature",
    "chrF": "chrf_signature",
}


def result_lines(result: Result) -> list[str]:
    """The lines printed for a finished run: its speed, and one for each text and signature."""
    lines = [
        f"{result.steps:,} steps in {result.train_seconds:,.0f} s "
        f"({result.tokens_per_second:,.0f} target tokens/s)",
        score_line("valid", result),
    ]
    if (mean := result.averaged) is not None:
        lines.append(f"{score_line('valid', mean)}  (mean of {mean.checkpoints} checkpoints)")
    if result.test_perplexity is not None:
        lines.append(score_line("test", result, "test_"))
    return [*lines, *signature_lines(to_dict(result))]


def signature_lines(signatures: Mapping[str, str | None]) -> list[str]:
    """A line for each signature among these fields of a result."""
    found = {name: signatures.get(field) for name, field in _SIGNATURES.items()}
    return [f"{name}: {signature}" for name, signature in found.items() if signature]


def score_line(split: str, scores: Result | Averaged, prefix: str = "") -> str:
    """The scores of one text in one line."""
    bleu, tokenised, chrf, parses, perplexity = (
        getattr(scores, f"{prefix}{name}")
        for name in ("bleu", "tokenised_bleu", "chrf", "parses", "perplexity")
    )
    parts = [split.ljust(5)]
    parts += [] if bleu is None else [f"BLEU {bleu:.2f}"]
    parts += [] if tokenised is None else [f"tokenised BLEU {tokenised:.2f}"]
    parts += [] if chrf is None else [f"chrF {chrf:.2f}"]
    if parses is not None:
        parts.append(
            f"F1 {parses.f1:.2f} (precision {parses.precision:.1f}, recall {parses.recall:.1f}, "
            f"exact match {parses.exact_match:.1f}; right-branching {parses.baseline_f1:.1f}; "
            f"{parses.sentences} sentences)"
        )
    return "  ".join([*parts, f"perplexity {perplexity:.2f}"])
