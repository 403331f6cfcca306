"""Scores of parses as EVALB counts them with Collins's parameters (COLLINS.prm)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformer.data.trees import Tree


@dataclass(frozen=True, kw_only=True, slots=True)
class BracketScores:
    """Scores of some sentences, in percent.

    ``errors`` of the ``sentences`` are left out of all other figures, because after the deletion of
    punctuation the parse has other words than the reference.
    """

    sentences: int
    errors: int
    precision: float
    recall: float
    f1: float
    exact_match: float
    tagging_accuracy: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ParseScores:
    """Scores of all sentences, and of those of at most 40 words (punctuation included)."""

    all: BracketScores
    up_to_40: BracketScores


def evaluate_parses(
    gold: Sequence[Tree], found: Sequence[Tree], *, gold_punctuation: bool = False
) -> ParseScores:
    """Compare the trees ``found`` with the references ``gold``, sentence by sentence.

    Args:
        gold: the references
        found: as many parses
        gold_punctuation: first give punctuation in ``found`` the tags that it has in ``gold``, so
            that a wrong tag does not make the sentence an error, which the score leaves out

    Raises:
        InputError: if the numbers of trees differ.
    """
    raise NotImplementedError


def right_branching(words: Sequence[str], label: str) -> Tree:
    """The trivial parse: every word but the last opens a constituent that reaches to the end."""
    raise NotImplementedError
