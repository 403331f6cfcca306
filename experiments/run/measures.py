"""The scores of a finished run that tables compare: how they are named, rounded and ordered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from experiments.run.results import Result
from transformer import formats


@dataclass(frozen=True, slots=True)
class Measure:
    """A score by the name of its field in a :class:`~experiments.run.results.Result`.

    ``label`` is its name in sentences and ``short`` at the head of a column; ``digits`` are its
    decimals, ``paper_digits`` those that the paper gives, and ``scale`` the least and the greatest
    value that it can have.
    """

    name: str
    label: str
    short: str
    digits: int
    paper_digits: int
    direction: Literal["minimize", "maximize"] = "maximize"
    scale: tuple[float, float] = (0.0, 100.0)

    @property
    def title(self) -> str:
        """The label at the beginning of a sentence or of an axis."""
        return self.label[0].upper() + self.label[1:]

    @property
    def is_of_test(self) -> bool:
        """Whether it is of the test set; others are of the validation set."""
        return self.name.startswith("test_")


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("perplexity", "perplexity", "PPL", 3, 2, "minimize", (1.0, math.inf)),
        Measure("bleu", "BLEU", "BLEU", 1, 1),
        Measure("test_bleu", "BLEU of the test set", "BLEU test", 1, 1),
        Measure("f1", "F1", "F1", 1, 1),
        Measure("test_f1", "F1 of the test set", "F1 test", 1, 1),
    )
}


def valid_scores(result: Result) -> dict[str, float]:
    """What a run scored on the validation set, by measure."""
    found = {x: getattr(result, x) for x in MEASURES if not MEASURES[x].is_of_test}
    return {name: score for name, score in found.items() if score is not None}


def in_words(scores: dict[str, float]) -> str:
    """Scores in one line: ``perplexity 7.52, BLEU 30.4``."""
    found = [(MEASURES[name], score) for name, score in scores.items() if name in MEASURES]
    return ", ".join(f"{x.label} {formats.number(y, x.paper_digits)}" for x, y in found)
