"""Scores of parses as EVALB counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from transformer.parsing.trees import (
    MAX_DEPTH,
    PUNCTUATION,
    TOP,
    WORD,
    Tree,
    delinearise,
    leaves,
    plain_label,
)

# Labels that count as equal.
_EQUAL = {"PRT": "ADVP"}

Span = tuple[str, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class BracketScores:
    """Scores of some sentences, in percent."""

    sentences: int
    precision: float
    recall: float
    f1: float
    exact_match: float


def evaluate_parses(gold: Sequence[Tree], found: Sequence[Tree]) -> BracketScores:
    """Compare the trees ``found`` with the references ``gold``, which are over the same words.

    Constituents are compared by label, first and last word, each as often as it occurs. The label
    TOP and the words that ``gold`` tags as punctuation are deleted, and ADVP equals PRT. EVALB goes
    by each tree's own tags, and leaves out a sentence whose two trees then have other words.
    """
    compared: list[tuple[Counter[Span], Counter[Span]]] = []
    for reference, tree in zip(gold, found, strict=True):
        counted = _counted(reference)
        if any(counted):  # a sentence of nothing but punctuation has nothing to compare
            compared.append((Counter(spans(reference, counted)), Counter(spans(tree, counted))))
    of_gold = sum(reference.total() for reference, _ in compared)
    of_found = sum(tree.total() for _, tree in compared)
    matched = sum((reference & tree).total() for reference, tree in compared)
    exact = sum(reference == tree for reference, tree in compared)
    return BracketScores(
        sentences=len(gold),
        precision=_percent(matched, of_found),
        recall=_percent(matched, of_gold),
        f1=_percent(2 * matched, of_gold + of_found),
        exact_match=_percent(exact, len(compared)),
    )


def evaluate_lines(
    sentences: Sequence[str], references: Sequence[str], lines: Sequence[str]
) -> tuple[BracketScores, BracketScores]:
    """The scores of a model's ``lines`` for ``sentences``, against linearised ``references``, and
    those of the baseline: right-branching, with the most frequent label of the references.

    A sentence that was too long, whose line is empty, is left out, as it is of the perplexity.
    """
    texts = zip(sentences, references, lines, strict=True)
    parsed = [(x.split(), gold, line) for x, gold, line in texts if line or not x]
    gold = [delinearise(tree, x) for x, tree, _ in parsed]
    found = [delinearise(line, x) for x, _, line in parsed]
    label = most_frequent_label(gold)
    baseline = [right_branching(x, label) for x, _, _ in parsed]
    return evaluate_parses(gold, found), evaluate_parses(gold, baseline)


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def _counted(tree: Tree) -> list[bool]:
    """For each word whether it counts, as punctuation does not."""
    return [leaf.label not in PUNCTUATION for leaf in leaves(tree)]


def spans(tree: Tree, counted: Sequence[bool]) -> list[Span]:
    """Label, start and end of each constituent that counts, over the words that are ``counted``."""
    places = [0, *accumulate(counted)]
    found: list[Span] = []

    def end_of(tree: Tree, start: int) -> int:
        if tree.word is not None:
            return start + 1
        end = start
        for child in tree.children:
            end = end_of(child, end)
        label = plain_label(tree.label)
        if places[end] > places[start] and label != TOP:
            found.append((_EQUAL.get(label, label), places[start], places[end]))
        return end

    end_of(tree, 0)
    return found


def right_branching(words: Sequence[str], label: str) -> Tree:
    """The trivial parse: a constituent begins at every word but the last and reaches to the end.

    Args:
        words: of the sentence; punctuation has itself as its tag, every other word XX
        label: of all constituents, see :func:`most_frequent_label`
    """
    tagged = [Tree(word if word in PUNCTUATION else WORD, word=word) for word in words]
    depth = min(max(1, len(words) - 1), MAX_DEPTH)
    children = tuple(tagged[depth:])
    for leaf in reversed(tagged[:depth]):
        children = (Tree(label, (leaf, *children)),)
    return Tree(TOP, children)


def most_frequent_label(trees: Iterable[Tree]) -> str:
    """The label of most constituents that count, of equally frequent ones the first; S if none."""
    labels = Counter(label for tree in trees for label, _, _ in spans(tree, _counted(tree)))
    return labels.most_common(1)[0][0] if labels else "S"
