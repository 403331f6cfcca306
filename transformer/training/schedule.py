"""The learning rate (section 5.3)."""

from __future__ import annotations


def learning_rate(step: int, *, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), equation 3, times ``factor``.

    ``step`` counts from 1. The peak, at ``warmup_steps``, is (d_model · warmup_steps)^-0.5.
    """
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
