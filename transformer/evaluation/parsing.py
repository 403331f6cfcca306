"""Scores of parses as EVALB counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from transformer.data.trees import (
    MAX_DEPTH,
    PUNCTUATION,
    TOP,
    WORD,
    Tree,
    leaves,
    plain_label,
    words,
)
from transformer.errors import InputError

# EVALB's second list of figures.
_CUT_OFF = 40
# Labels that count as equal.
_EQUAL = {"PRT": "ADVP"}
# A tag that no word has.
_WRONG = "?"

Span = tuple[str, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class BracketScores:
    """Scores of some sentences, in percent.

    Of the ``sentences``, ``errors`` are left out of all other figures, because the parse has other
    words than the reference after the deletion of punctuation, and so are ``skipped`` ones, where
    the parse then has no word.
    """

    sentences: int
    errors: int
    skipped: int
    precision: float
    recall: float
    f1: float
    exact_match: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ParseScores:
    """Scores of all sentences, and of those of at most 40 words, punctuation included."""

    all: BracketScores
    up_to_40: BracketScores


@dataclass(frozen=True, kw_only=True, slots=True)
class _Counts:
    """What EVALB counts in one sentence; ``is_error`` and ``is_skipped`` exclude all the rest."""

    length: int
    is_error: bool = False
    is_skipped: bool = False
    gold: int = 0
    found: int = 0
    matched: int = 0


def evaluate_parses(
    gold: Sequence[Tree], found: Sequence[Tree], *, gold_punctuation: bool = False
) -> ParseScores:
    """Compare the trees ``found`` with the references ``gold``, sentence by sentence.

    Words tagged as punctuation and the label TOP are deleted, ADVP equals PRT, and constituents are
    compared by label, first and last word, each as often as it occurs.

    Args:
        gold: the references
        found: as many parses
        gold_punctuation: delete the words that are punctuation in ``gold`` from both. Else a word
            that the parse wrongly tags as punctuation, or as none, makes the sentence an error,
            and leaves it out of the score
    """
    if len(gold) != len(found):
        raise InputError(
            f"there are {len(found)} parses but {len(gold)} references: they must correspond"
        )
    counts = [
        _count(reference, _with_punctuation_of(reference, tree) if gold_punctuation else tree)
        for reference, tree in zip(gold, found, strict=True)
    ]
    return ParseScores(
        all=_total(counts), up_to_40=_total(x for x in counts if x.length <= _CUT_OFF)
    )


def _count(gold: Tree, found: Tree) -> _Counts:
    length = len(words(gold))
    gold_words, found_words = _counted_words(gold), _counted_words(found)
    if not found_words:
        return _Counts(length=length, is_skipped=True)
    if [leaf.word for leaf in gold_words] != [leaf.word for leaf in found_words]:
        return _Counts(length=length, is_error=True)
    gold_spans, found_spans = Counter(spans(gold)), Counter(spans(found))
    return _Counts(
        length=length,
        gold=gold_spans.total(),
        found=found_spans.total(),
        matched=(gold_spans & found_spans).total(),
    )


def _counted_words(tree: Tree) -> list[Tree]:
    return [leaf for leaf in leaves(tree) if leaf.label not in PUNCTUATION]


def spans(tree: Tree) -> list[Span]:
    """Label, start and end of each constituent that counts, over the words that count."""
    found: list[Span] = []

    def end_of(tree: Tree, start: int) -> int:
        if tree.word is not None:
            return start + (tree.label not in PUNCTUATION)
        end = start
        for child in tree.children:
            end = end_of(child, end)
        label = plain_label(tree.label)
        if end > start and label != TOP:
            found.append((_EQUAL.get(label, label), start, end))
        return end

    end_of(tree, 0)
    return found


def _total(counts: Iterable[_Counts]) -> BracketScores:
    every = list(counts)
    valid = [x for x in every if not (x.is_error or x.is_skipped)]
    matched = sum(x.matched for x in valid)
    gold, found = sum(x.gold for x in valid), sum(x.found for x in valid)
    exact = sum(x.gold == x.found == x.matched for x in valid)
    return BracketScores(
        sentences=len(every),
        errors=sum(x.is_error for x in every),
        skipped=sum(x.is_skipped for x in every),
        precision=_percent(matched, found),
        recall=_percent(matched, gold),
        f1=_percent(2 * matched, gold + found),
        exact_match=_percent(exact, len(valid)),
    )


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def _with_punctuation_of(gold: Tree, found: Tree) -> Tree:
    tags = [leaf.label for leaf in leaves(gold)]
    if len(tags) != len(words(found)):
        return found
    rest = iter(tags)

    def retagged(tree: Tree) -> Tree:
        if tree.word is None:
            return replace(tree, children=tuple(map(retagged, tree.children)))
        tag = next(rest)
        if tag in PUNCTUATION:
            return replace(tree, label=tag)
        return replace(tree, label=_WRONG) if tree.label in PUNCTUATION else tree

    return retagged(found)


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
    labels = Counter(label for tree in trees for label, _, _ in spans(tree))
    return labels.most_common(1)[0][0] if labels else "S"
