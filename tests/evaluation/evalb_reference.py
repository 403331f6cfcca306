"""Print what PYEVALB and supar count for the trees of ``test_parsing.py``, to be written there.

    python -m pip install --target /tmp/evalb PYEVALB==0.1.3 nltk
    python -m pip install --target /tmp/evalb --no-deps supar==1.1.4
    PYTHONPATH=.:/tmp/evalb python -m tests.evaluation.evalb_reference

Neither does all that EVALB does with COLLINS.prm. supar 1.1.4 deletes punctuation and counts
constituents as often as they occur, but has no errors and no tags: sentences with an error are left
out here. PYEVALB 0.1.3 has both, but deletes nothing and compares sets: it is given trees without
TOP and punctuation, in which repeated constituents have numbers.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from random import Random
from typing import Any

from tests.evaluation.damage import damaged, random_tree
from transformer.data.trees import Tree, to_penn

PUNCTUATION = {",", ".", ":", "``", "''"}
Pairs = list[tuple[Tree, Tree]]


def generated() -> Pairs:
    """400 random trees, each with a damaged copy."""
    rng = Random(2015)
    golds = [random_tree(rng) for _ in range(400)]
    return [(gold, damaged(gold, rng)) for gold in golds]


def pruned(tree: Tree) -> str:
    """``tree`` as PYEVALB must see it; empty if no word is left."""
    seen: Counter[tuple[str, str]] = Counter()

    def walk(tree: Tree) -> str:
        if tree.word is not None:
            return "" if tree.label in PUNCTUATION else f"({tree.label} {tree.word})"
        inner = " ".join(filter(None, map(walk, tree.children)))
        if not inner or tree.label == "TOP":
            return inner
        label = "ADVP" if tree.label == "PRT" else tree.label
        words = " ".join(part.rstrip(")") for part in inner.split() if part.endswith(")"))
        seen[label, words] += 1
        return f"({label}.{seen[label, words]} {inner})"

    inner = walk(tree)
    return inner and f"(ROOT {inner})"


def pyevalb(pairs: Pairs) -> dict[str, Any]:
    """PYEVALB's summary; sentences without words are left out, and ROOT is not counted."""
    from PYEVALB import parser, scorer  # pyright: ignore[reportMissingImports]

    counts: Counter[str] = Counter()
    for gold, found in pairs:
        texts = pruned(gold), pruned(found)
        if not texts[1]:
            counts["skipped"] += 1
            continue
        try:
            trees = [parser.create_from_bracket_string(text or "(ROOT (X -))") for text in texts]
            result = scorer.Scorer().score_trees(*trees)
        except (scorer.LengthUnmatch, scorer.WordsUnmatch):
            counts["errors"] += 1
            continue
        matched, brackets = result.matched_brackets - 1, result.gold_brackets - 1
        counts["matched"] += matched
        counts["gold"] += brackets
        counts["found"] += result.test_brackets - 1
        counts["exact"] += matched == brackets == result.test_brackets - 1
    return dict(counts)


def supar(pairs: Pairs) -> dict[str, int]:
    """The counts of supar's SpanMetric, without sentences with errors."""
    import nltk  # pyright: ignore[reportMissingImports]

    for name in ("supar", "supar.utils"):  # not run, which would import its parsers as well
        spec = importlib.util.find_spec(name)
        assert spec is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
    from supar.utils.metric import SpanMetric  # pyright: ignore[reportMissingImports]
    from supar.utils.transform import Tree as Trees  # pyright: ignore[reportMissingImports]

    def spans(tree: Tree) -> Any:
        delete = {"TOP", *PUNCTUATION}
        parsed = nltk.Tree.fromstring(to_penn(tree))
        return Trees.factorize(parsed, delete, {"PRT": "ADVP"})

    def kept(tree: Tree) -> list[str]:
        return [part.rstrip(")") for part in pruned(tree).split() if part.endswith(")")]

    valid = [(gold, found) for gold, found in pairs if kept(gold) == kept(found) != []]
    metric = SpanMetric()
    metric([spans(found) for _, found in valid], [spans(gold) for gold, _ in valid])
    names = {"matched": "ltp", "gold": "gold", "found": "pred", "exact": "n_lcm"}
    return {name: int(getattr(metric, attribute)) for name, attribute in names.items()}


if __name__ == "__main__":
    for count in (pyevalb, supar):
        print(count.__name__, count(generated()))
