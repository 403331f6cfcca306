"""Equation 3, and the linear schedule for short runs."""

from __future__ import annotations

import math

import pytest

from transformer.config import TrainingConfig
from transformer.training.optimizer import learning_rate


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_the_peak_is_the_papers(d_model: int, peak: float) -> None:
    rates = [learning_rate(step, d_model, TrainingConfig()) for step in range(1, 10_001)]
    assert rates.index(max(rates)) == 3_999
    assert math.isclose(max(rates), (d_model * 4_000) ** -0.5, rel_tol=1e-12)
    assert math.isclose(max(rates), peak, rel_tol=1e-3)


def test_the_schedule_is_equation_3() -> None:
    for step in (1, 7, 99, 100, 101, 10_007):
        equation = 26**-0.5 * min(step**-0.5, step * 101**-1.5)
        assert math.isclose(learning_rate(step, 26, TrainingConfig(warmup_steps=101)), equation)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear"])
def test_the_factor_multiplies_it_everywhere(schedule: str) -> None:
    plain = TrainingConfig(warmup_steps=101, schedule=schedule)  # pyright: ignore[reportArgumentType]
    scaled = TrainingConfig(
        warmup_steps=101,
        schedule=schedule,  # pyright: ignore[reportArgumentType]
        learning_rate_factor=0.3,
    )
    for step in (1, 99, 101, 10_007):
        expected = 0.3 * learning_rate(step, 26, plain)
        assert math.isclose(learning_rate(step, 26, scaled), expected)


def test_the_linear_schedule_has_the_same_warm_up_and_ends_at_max_steps() -> None:
    config = TrainingConfig(warmup_steps=10, max_steps=29, schedule="linear")
    equation = TrainingConfig(warmup_steps=10, max_steps=29)
    rates = [learning_rate(step, 64, config) for step in range(1, 31)]
    assert rates[:10] == [learning_rate(step, 64, equation) for step in range(1, 11)]
    # From the peak at step 10 down to 0 at step 30 in twenty equal steps.
    assert rates[19] == pytest.approx(rates[9] / 2)
    assert rates[28] == pytest.approx(rates[9] / 20)
    assert rates[29] == 0.0
    assert learning_rate(31, 64, config) == 0.0
