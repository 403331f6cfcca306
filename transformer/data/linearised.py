"""Trees as lines of text, as Vinyals et al. (2015, "Grammar as a foreign language") wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import repeat
from typing import Literal

from transformer.data.trees import MAX_DEPTH, TOP, Tree, escape

#: What stands for a word: its tag if it is punctuation, else XX, its tag, or the word itself.
Leaves = Literal["XX", "tags", "words"]
#: The tags of punctuation. The score of a parse leaves out words with these tags.
PUNCTUATION = frozenset({",", ".", ":", "``", "''"})
WORD = "XX"
#: What a vocabulary keeps whole: brackets with their labels, and what stands for a word.
BRACKETS = re.compile(rf"[()]\S+|{WORD}")

# Neither brackets, nor function tags and indices, nor the tag of empty elements.
_LABEL = re.compile(r"(?!-NONE-$)(-[^()]*|[^()=|-]+)")


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
    elif leaves == "tags" or tree.label in PUNCTUATION:
        yield tree.label
    else:
        yield escape(tree.word) if leaves == "words" else WORD


@dataclass(slots=True)
class _Open:
    """A constituent that is still open."""

    label: str
    children: list[Tree] = field(default_factory=list[Tree])


def delinearise(line: str, words: Sequence[str], leaves: Leaves = "XX") -> tuple[Tree, bool]:
    """The tree over exactly ``words`` that ``line`` describes, and whether it was repaired.

    Any line gives a tree. The repairs are these:

    - a closing bracket closes the last open one if that has its label, else the one before if that
      has it, and the last is then left out; any other closing bracket is left out, and so is what
      has no plain label, such as ``(`` or ``(NP-SBJ``
    - leaves after the last word are left out; with ``leaves`` "words", so are leaves without a word
      in their place after both have been aligned, and a word without a leaf joins the one before it
    - what is open at the end is closed there, and words after the last leaf are then added at the
      end of the last outermost constituent, with the tag XX
    - constituents without words, and those within 200 others, are left out

    With ``leaves`` "words" the tag of a word is XX, unless its leaf is a tag of punctuation; any
    other leaf that differs from its word counts as a repair.
    """
    stack, used, repaired = [_Open("")], 0, False  # no bracket closes the first, which is TOP
    tokens = line.split()
    counts = iter(_words_per_leaf(tokens, words)) if leaves == "words" else repeat(1)
    for token in tokens:
        kind = token[0] if token[0] in "()" else ""
        label = token.removeprefix(kind)
        if not _LABEL.fullmatch(label) and (kind or leaves != "words"):
            repaired = True
        elif kind == "(":
            stack.append(_Open(label))
        elif kind == ")":
            if stack[-1].label != label:
                repaired = True
                if len(stack) > 1 and stack[-2].label == label:
                    _leave_out(stack)
            if stack[-1].label == label:
                repaired |= _close(stack)
        else:
            taken = words[used : used + next(counts)]
            used += len(taken)
            repaired |= len(taken) != 1
            if leaves == "words" and label not in PUNCTUATION:
                repaired |= [label] != [escape(word) for word in taken]
                label = WORD
            stack[-1].children += [
                Tree(WORD if n else label, word=word) for n, word in enumerate(taken)
            ]
    repaired |= len(stack) > 1 or used < len(words)
    while len(stack) > 1:
        _close(stack)
    return Tree(TOP, _with(stack[0].children, words[used:])), repaired


def _words_per_leaf(tokens: Sequence[str], words: Sequence[str]) -> list[int]:
    """How many words each leaf of ``tokens`` stands for; words after the last leaf are left."""
    found = [token for token in tokens if token[0] not in "()"]
    matcher = SequenceMatcher(None, found, [escape(word) for word in words], autojunk=False)
    counts = [0] * len(found)
    for _, start, end, first, last in matcher.get_opcodes():
        paired = min(end - start, last - first)
        for leaf in range(start, start + paired):
            counts[leaf] += 1
        if paired < last - first and end < len(found):
            counts[max(0, start + paired - 1)] += last - first - paired
    return counts


def _leave_out(stack: list[_Open]) -> None:
    """Put the innermost constituent's children in its place."""
    done = stack.pop()
    stack[-1].children += done.children


def _close(stack: list[_Open]) -> bool:
    """Close the innermost constituent; True if it had to be left out."""
    if len(stack) > MAX_DEPTH:
        _leave_out(stack)
        return True
    done = stack.pop()
    if done.children:
        stack[-1].children.append(Tree(done.label, tuple(done.children)))
    return not done.children


def _with(children: Sequence[Tree], words: Sequence[str]) -> tuple[Tree, ...]:
    """Trees with ``words`` added at the end of the last one, or after it if it is a word."""
    added = tuple(Tree(WORD, word=word) for word in words)
    if words and children and children[-1].word is None:
        last = children[-1]
        return (*children[:-1], Tree(last.label, (*last.children, *added)))
    return (*children, *added)
