"""Trees as lines of text (Vinyals et al. 2015)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from transformer.data.trees import MAX_DEPTH, TOP, Tree, escape
from transformer.errors import InputError

#: What stands for a word: its tag if it is punctuation, else XX or the word itself.
Leaves = Literal["XX", "words"]
#: The tags of punctuation. The score of a parse leaves out words with these tags.
PUNCTUATION = frozenset({",", ".", ":", "``", "''"})
WORD = "XX"
#: What a vocabulary keeps whole: brackets with their labels, and what stands for a word.
BRACKETS = re.compile(rf"[()]\S+|{WORD}")
#: As many constituents may hold one another, below the bracket of the whole tree.
MAX_OPEN = MAX_DEPTH - 1


def linearise(tree: Tree, leaves: Leaves = "XX") -> str:
    """``tree`` without its TOP as a line such as ``(S (NP XX )NP (VP XX (NP XX )NP )VP . )S``."""
    parts = tree.children if tree.label == TOP else (tree,)
    return " ".join(token for part in parts for token in _tokens(part, leaves))


def _tokens(tree: Tree, leaves: Leaves) -> Iterator[str]:
    if tree.word is None:
        yield f"({tree.label}"
        for child in tree.children:
            yield from _tokens(child, leaves)
        yield f"){tree.label}"
    else:
        yield tree.label if tree.label in PUNCTUATION else _plain_form(tree.word, leaves)


def _plain_form(word: str, leaves: Leaves) -> str:
    return escape(word) if leaves == "words" else WORD


def leaf_forms(word: str, leaves: Leaves) -> list[str]:
    """The tokens that can stand for ``word``; punctuation has no letter or digit."""
    tags = [] if any(x.isalnum() for x in word) else sorted(PUNCTUATION)
    return [_plain_form(word, leaves), *tags]


def delinearise(line: str, words: Sequence[str]) -> Tree:
    """The tree over ``words`` that ``line`` describes; the tag of all but punctuation is XX."""
    rest, stack = iter(words), [(TOP, list[Tree]())]
    for token in line.split():
        label = token[1:]
        if token[0] == "(":
            stack.append((label, []))
        elif token[0] != ")":
            word = next(rest, None)
            if word is None:
                raise InputError(f"a tree has more leaves than its {len(words)} words: {line}")
            stack[-1][1].append(Tree(token if token in PUNCTUATION else WORD, word=word))
        elif len(stack) == 1 or stack[-1][0] != label or not stack[-1][1]:
            raise InputError(f"a tree has a bracket {token} that closes nothing: {line}")
        else:
            closed, children = stack.pop()
            stack[-1][1].append(Tree(closed, tuple(children)))
    if len(stack) > 1 or next(rest, None) is not None:
        raise InputError(f"a tree ends before its {len(words)} words and brackets do: {line}")
    return Tree(TOP, tuple(stack[0][1]))
