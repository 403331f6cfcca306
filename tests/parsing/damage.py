"""Trees for tests of parsing: random ones, and trees with errors as a parser makes them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from transformer.parsing.trees import TOP, Tree

LABELS = ("S", "NP", "VP", "PP", "ADVP", "PRT", "SBAR")
TAGS = ("NN", "DT", "VBZ", "IN", "JJ", "RB", ",", ".", ":", "``", "''")


def random_tree(rng: Random, longest: int = 60) -> Tree:
    """A tree with unary chains, repeated labels and constituents of nothing but punctuation."""
    leaves = [Tree(rng.choice(TAGS), word=f"w{n}") for n in range(rng.randint(1, longest))]
    return Tree(TOP, tuple(_grouped(leaves, rng, depth=0)))


def _grouped(trees: list[Tree], rng: Random, depth: int) -> list[Tree]:
    if depth == 5 or (depth > 1 and rng.random() < 0.3):
        return trees
    found: list[Tree] = []
    while trees:
        size = rng.randint(1, max(1, len(trees)))
        part, trees = trees[:size], trees[size:]
        inner = _grouped(part, rng, depth + 1)
        found += [Tree(rng.choice(LABELS), tuple(inner))] if rng.random() < 0.8 else inner
    return found


def damaged(tree: Tree, rng: Random) -> Tree:
    """``tree`` over the same words, with some labels, constituents and tags other than they were.

    Every tenth or so gives punctuation another tag, which EVALB counts as an error.
    """
    tags = TAGS if rng.random() < 0.1 else TAGS[:6]
    return replace(tree, children=_damaged_children(tree.children, rng, tags))


def _damaged_children(
    children: tuple[Tree, ...], rng: Random, tags: tuple[str, ...]
) -> tuple[Tree, ...]:
    found: list[Tree] = []
    for child in children:
        if child.word is not None:
            is_free = tags is TAGS or child.label not in TAGS[6:]
            change = is_free and rng.random() < 0.05
            found.append(replace(child, label=rng.choice(tags)) if change else child)
            continue
        inner = _damaged_children(child.children, rng, tags)
        chance = rng.random()
        if chance < 0.08:
            found += inner  # the constituent is missed
        elif chance < 0.16:
            found.append(Tree(rng.choice(LABELS), inner))
        elif chance < 0.24 and len(inner) > 2:  # a constituent too many
            found.append(Tree(child.label, (Tree(rng.choice(LABELS), inner[:2]), *inner[2:])))
        else:
            found.append(Tree(child.label, inner))
    return tuple(found)
