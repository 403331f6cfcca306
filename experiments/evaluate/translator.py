"""The interface of translators and parsers, and their scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from experiments.records.experiment import Experiment
from transformer.config import override
from transformer.data.vocabulary import Vocabulary
from transformer.evaluation.bleu import bleu, chrf, tokenised_bleu
from transformer.evaluation.perplexity import Perplexity


class Text(NamedTuple):
    """The lines of a text with their references; ``more`` has further references of each line."""

    sources: list[str]
    references: list[str]
    more: Sequence[list[str]] = ()


@dataclass(frozen=True, slots=True)
class Translator(ABC):
    """A model of an experiment with its vocabulary and its way to search."""

    experiment: Experiment
    vocabulary: Vocabulary

    @property
    @abstractmethod
    def search(self) -> str:
        """A description of how it searches for translations."""

    def as_source(self, line: str) -> str:
        """A user's line as the source sentences of the corpus are written."""
        return line

    def as_shown(self, found: str, line: str) -> str:
        """The output that was decoded for the source ``line``, as a user reads it."""
        del line
        return found

    def score(self, text: Text, hypotheses: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """The scores of ``hypotheses`` by the fields of a :class:`Result`, and their signatures."""
        language = self.experiment.config.data.corpus.target_language
        scores = {
            "bleu": bleu(hypotheses, text.references, language, text.more),
            "tokenised_bleu": tokenised_bleu(hypotheses, text.references, language, text.more),
            "chrf": chrf(hypotheses, text.references, text.more),
        }
        signatures = {f"{name}_signature": found.signature for name, found in scores.items()}
        return {name: found.score for name, found in scores.items()}, signatures

    @abstractmethod
    def decode(
        self,
        lines: Sequence[str],
        *,
        on_progress: Callable[[int], object] | None = None,
        first_line: int = 1,
    ) -> list[str]:
        """Translate or parse lines, as the model was trained to do.

        Args:
            on_progress: called with the number of lines done so far
            first_line: the number of the first of them in its text, for warnings
        """

    @abstractmethod
    def perplexity(self, text: Text) -> Perplexity:
        """The perplexity of the references of ``text``."""


def with_search(
    experiment: Experiment, beam_size: int | None, length_penalty: float | None
) -> Experiment:
    """The experiment with another search; None keeps its own setting."""
    search = {"beam_size": beam_size, "length_penalty": length_penalty}
    given = {name: value for name, value in search.items() if value is not None}
    return replace(experiment, config=override(experiment.config, **given))
