"""Dimensionless numbers of an experiment next to the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.run.results import Result
from transformer import formats
from transformer.config import Config
from transformer.training.optimizer import learning_rate

_FAR = 3


@dataclass(frozen=True, slots=True)
class RegimeNumber:
    """A dimensionless number, the paper's and ours; None until the base has finished.

    An experiment that keeps these numbers keeps the regime in which the paper compared its rows.
    """

    name: str
    paper: float
    ours: float | None

    @property
    def text(self) -> str:
        """Ours as text."""
        return formats.MISSING if self.ours is None else f"{self.ours:.3g}"


def regime(config: Config, result: Result | None) -> list[RegimeNumber]:
    """The numbers of a base with that configuration and, once it has finished, that result.

    The paper's are those of its base: 65 M parameters, 100,000 steps of 25,000 target tokens over
    a corpus of about 130 M.
    """
    training = config.training
    warm_up, steps = training.warmup_steps, training.max_steps
    peak, last = (
        learning_rate(step, config.model.d_model, training) for step in (min(warm_up, steps), steps)
    )
    epochs = seen = distinct = batch = None
    if result is not None:
        seen = result.target_tokens / result.parameters
        if corpus := result.corpus_target_tokens:
            epochs = result.target_tokens / corpus
            distinct = corpus / result.parameters
            batch = epochs / result.steps
    return [
        RegimeNumber("epochs", 19, epochs),
        RegimeNumber("target tokens seen per parameter", 38, seen),
        RegimeNumber("distinct target tokens per parameter", 2, distinct),
        RegimeNumber("warm-up share of the steps", 0.04, warm_up / steps),
        RegimeNumber("last learning rate over its peak", 0.2, last / peak),
        RegimeNumber("tokens of a batch over those of the corpus", 0.0002, batch),
    ]


def regime_warning(numbers: Sequence[RegimeNumber]) -> str:
    """A sentence that names the numbers far from the paper's; empty if there are none."""
    far = [
        f"{number.name} {number.text} (paper {number.paper:g})"
        for number in numbers
        if number.ours is not None and not 1 / _FAR <= number.ours / number.paper <= _FAR
    ]
    if not far:
        return ""
    return (
        f"More than a factor of {_FAR} from the paper's: {', '.join(far)}. Rows may differ from "
        "the paper's for this reason."
    )
