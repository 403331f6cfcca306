"""Trees as lines of text, as Vinyals et al. (2015, "Grammar as a foreign language") wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from transformer.data.trees import MAX_DEPTH, TOP, Tree

#: What stands for a word: its tag if it is punctuation, else XX; its tag; or the word itself.
Leaves = Literal["XX", "tags", "words"]
#: The tags of punctuation, which the score of a parse leaves out by its tag.
PUNCTUATION = frozenset({",", ".", ":", "``", "''"})
WORD = "XX"

_LABEL = re.compile(r"[^()\s]+")


def linearise(tree: Tree, leaves: Leaves = "XX") -> str:
    """``tree`` without its TOP as a line such as ``(S (NP XX )NP (VP XX (NP XX )NP )VP . )S``."""
    parts = tree.children if tree.label == TOP else (tree,)
    return " ".join(token for part in parts for token in _tokens(part, leaves))


def _tokens(tree: Tree, leaves: Leaves) -> Iterator[str]:
    if tree.word is not None:
        if leaves == "words":
            yield tree.word
        else:
            yield tree.label if leaves == "tags" or tree.label in PUNCTUATION else WORD
        return
    yield f"({tree.label}"
    for child in tree.children:
        yield from _tokens(child, leaves)
    yield f"){tree.label}"


def delinearise(line: str, words: Sequence[str], leaves: Leaves = "XX") -> tuple[Tree, bool]:
    """The tree over exactly ``words`` that ``line`` describes, and whether it was repaired.

    Any line gives a tree. A repair is one of these:

    - a closing bracket closes all that were opened within its constituent; if no such constituent
      is open, the bracket is left out, as are brackets without a label
    - leaves after the last word are left out
    - words after the last leaf are added at the end of the last outermost constituent
    - what is open at the end is closed
    - constituents without words, or below 200 others, are left out

    A tag that the line does not give is XX. With ``leaves`` "words", the tag of punctuation that is
    written like its tag is that, and every other tag is XX.
    """
    raise NotImplementedError
