"""The learning rate (section 5.3)."""

from __future__ import annotations

from transformer.config import TrainingConfig


def learning_rate(step: int, d_model: int, config: TrainingConfig) -> float:
    """d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), equation 3, times the factor.

    ``step`` counts from 1. The peak, at ``warmup_steps``, is (d_model · warmup_steps)^-0.5. From
    there the ``linear`` schedule falls on a straight line that reaches zero after ``max_steps``.
    """
    warmup = config.warmup_steps
    peak = config.learning_rate_factor * (d_model * warmup) ** -0.5
    if step <= warmup:
        return peak * step / warmup
    if config.schedule == "linear":
        return peak * max(0, config.max_steps + 1 - step) / (config.max_steps + 1 - warmup)
    return peak * (warmup / step) ** 0.5
