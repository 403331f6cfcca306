"""A scale in numbers without units, beside the paper's: a small experiment that keeps these keeps
the regime in which the paper's rows were compared."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.run.results import Result
from transformer import formats
from transformer.config import Config
from transformer.training.schedule import learning_rate

REGIME = ("number", "here", "paper")
_FAR = 3


@dataclass(frozen=True, slots=True)
class Number:
    """``ours`` is None until the base has a result that says it."""

    name: str
    ours: float | None
    paper: float

    @property
    def is_far(self) -> bool:
        """Whether it is more than three times the paper's, or less than a third of it."""
        return self.ours is not None and not 1 / _FAR <= self.ours / self.paper <= _FAR

    @property
    def cells(self) -> tuple[str, str, str]:
        """Name, ours and the paper's, as the report shows them."""
        ours = formats.MISSING if self.ours is None else f"{self.ours:.3g}"
        return self.name, ours, f"{self.paper:g}"


def regime(config: Config, result: Result | None) -> tuple[Number, ...]:
    """The numbers of a base with that configuration and, once it has finished, that result.

    The paper's are of its base: 65 M parameters, 100,000 steps of 25,000 target tokens over a
    corpus of about 130 M.
    """
    training = config.training
    rates = [
        learning_rate(step, config.model.d_model, training)
        for step in (min(training.warmup_steps, training.max_steps), training.max_steps)
    ]
    epochs = seen = distinct = batch = None
    if result is not None:
        seen = result.target_tokens / result.parameters
        if corpus := result.corpus_target_tokens:
            epochs = result.target_tokens / corpus
            distinct = corpus / result.parameters
            batch = 1 / (result.steps / epochs)
    return (
        Number("epochs", epochs, 19),
        Number("target tokens seen per parameter", seen, 38),
        Number("distinct target tokens per parameter", distinct, 2.0),
        Number("warm-up share of the steps", training.warmup_steps / training.max_steps, 0.04),
        Number("last learning rate over its peak", rates[1] / rates[0], 0.2),
        Number("tokens of a batch over those of the corpus", batch, 0.0002),
    )


def warning(numbers: tuple[Number, ...]) -> str:
    """Which numbers are far from the paper's, in a sentence; empty where none is."""
    far = [number.cells for number in numbers if number.is_far]
    if not far:
        return ""
    named = ", ".join(f"{name} {ours} (paper {paper})" for name, ours, paper in far)
    return (
        f"More than a factor of {_FAR} from the paper's: {named}. Rows may differ from the "
        "paper's for this reason."
    )
