"""Constituency trees, as files and as lines."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from transformer.errors import InputError

#: The label of the outer bracket, which treebanks leave empty or call TOP, ROOT or S1.
TOP = "TOP"
#: Trees are walked by recursion; those of treebanks are some 50 brackets deep at most.
MAX_DEPTH = 200

#: What stands for a word: its tag if it is punctuation, else XX or the word itself.
Leaves = Literal["XX", "words"]
#: The tags of punctuation. The score of a parse leaves out words with these tags.
PUNCTUATION = frozenset({",", ".", ":", "``", "''"})
WORD = "XX"
#: Tokens that a vocabulary keeps whole: brackets with their labels, and XX.
BRACKETS = re.compile(rf"[()]\S+|{WORD}")
#: How deep constituents may be nested below the bracket of the whole tree.
MAX_OPEN = MAX_DEPTH - 1

_OUTER = frozenset({"", TOP, "ROOT", "S1"})
_EMPTY = "-NONE-"
# Other white space than ASCII's may be part of a word. A word with its tag is one match, for speed.
_ATOM = r"[^() \t\r\n\f\v]+"
_TOKEN = re.compile(rf"\(\s*({_ATOM})\s+({_ATOM})\s*\)|[()]|{_ATOM}", re.ASCII)
_FUNCTION = re.compile(r"[-=|]")


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent with its ``children``, or a word with its part-of-speech tag as ``label``."""

    label: str
    children: tuple[Tree, ...] = ()
    word: str | None = None


@dataclass(slots=True)
class _Bracket:
    """An open bracket: where it began, its label, and its parts, None for empty ones."""

    start: int
    label: str = ""
    parts: list[Tree | None] = field(default_factory=list[Tree | None])


def read_trees(text: str, name: str) -> Iterator[Tree]:
    """The trees of a treebank file, each below a bracket called TOP.

    Empty elements (-NONE-) and brackets without a label are left out with the constituents that
    hold nothing else, and so are function tags and indices (NP-SBJ-1 becomes NP, ADVP|PRT becomes
    ADVP). A tree without any word is left out: parsers write ``(())`` or ``(TOP)`` for a sentence
    without a parse. Inside a tree a label alone is refused, as its word may be a bracket.

    Args:
        text: the trees, with any white space between brackets
        name: of the file, for messages
    """

    def error(position: int, problem: str) -> InputError:
        return InputError(f"{name}, line {text.count(chr(10), 0, position) + 1}: {problem}")

    def misplaced(position: int) -> InputError:
        return error(
            position,
            f"{text[position:].split(maxsplit=1)[0]!r} is out of place: a bracket holds a tag and "
            "one word, or a label and brackets; words that are brackets are written -LRB-, -RRB-",
        )

    stack, bracket_as_word = [_Bracket(0, label="file")], None
    for match in _TOKEN.finditer(text):
        token, position, bracket = match[0], match.start(), stack[-1]
        if match[1]:
            bracket.parts.append(_leaf(match[1], match[2]))
        elif token == "(":
            if len(stack) > MAX_DEPTH:
                raise error(position, f"a tree is more than {MAX_DEPTH} brackets deep")
            stack.append(_Bracket(position))
        elif token == ")" and len(stack) > 1:
            stack.pop()
            outer, children = stack[-1], tuple(filter(None, bracket.parts))
            has_only_label = bracket.label and not bracket.parts and outer.label not in _OUTER
            lacks_label = children and not bracket.label
            if len(stack) == 1:
                bracket_as_word = None
            elif has_only_label or lacks_label:
                raise misplaced(bracket.start)
            elif not bracket.label and outer.label and not outer.parts:
                bracket_as_word = bracket.start  # as in (-LRB- (), if the tree does not close
            outer.parts.append(Tree(plain_label(bracket.label), children) if children else None)
        elif bracket.label or bracket.parts:
            raise misplaced(position)
        else:
            bracket.label = token
    if bracket_as_word is not None:
        raise misplaced(bracket_as_word)
    if len(stack) > 1:
        raise error(stack[1].start, "the tree that begins here does not close")
    for tree in filter(None, stack[0].parts):
        is_outer = tree.word is None and tree.label in _OUTER
        yield Tree(TOP, tree.children if is_outer else (tree,))


def _leaf(tag: str, word: str) -> Tree | None:
    """A word with its tag, or None for an empty element."""
    word = "".join(word.split())  # sentences are split into words at any white space
    return Tree(plain_label(tag), word=word) if word and tag != _EMPTY else None


@functools.cache
def plain_label(label: str) -> str:
    """``label`` without white space, function tags and indices; -LRB- and the like stay."""
    label = "".join(label.split())
    return label if label.startswith("-") else _FUNCTION.split(label, maxsplit=1)[0] or label


def leaves(tree: Tree) -> Iterator[Tree]:
    """The words of ``tree`` with their tags, from left to right."""
    if tree.word is not None:
        yield tree
    for child in tree.children:
        yield from leaves(child)


def words(tree: Tree) -> list[str]:
    """The words of ``tree``, from left to right."""
    return [leaf.word for leaf in leaves(tree) if leaf.word is not None]


def escape(word: str) -> str:
    """``word`` with its brackets written as treebanks write them, -LRB- and -RRB-."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def to_penn(tree: Tree) -> str:
    """``tree`` on one line, as treebanks write it: ``(TOP (S (NP (PRP We)) (VP (VBP agree))))``."""
    if tree.word is not None:
        return f"({tree.label} {escape(tree.word)})"
    return f"({' '.join([tree.label, *map(to_penn, tree.children)])})"


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
            if len(stack) > MAX_DEPTH:
                raise InputError(f"a tree is more than {MAX_DEPTH} brackets deep: {line}")
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


def check_lines(sentences: Sequence[str], lines: Sequence[str], name: str) -> None:
    """Check that the ``lines`` of the file ``name`` are trees over the words of ``sentences``."""
    for number, (sentence, line) in enumerate(zip(sentences, lines, strict=True), 1):
        try:
            delinearise(line, sentence.split())
        except InputError as error:
            raise InputError(f"{name}, line {number}: {error}") from error
