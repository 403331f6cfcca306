"""Constituency trees, read from treebank files in the style of the Penn Treebank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from transformer.errors import InputError

#: The label of the outer bracket, which treebanks leave empty or call TOP, ROOT or S1.
TOP = "TOP"
#: Trees are walked by recursion; those of treebanks are some 50 brackets deep at most.
MAX_DEPTH = 200

_OUTER = frozenset({"", "TOP", "ROOT", "S1"})
_EMPTY = "-NONE-"
_TOKEN = re.compile(r"[()]|[^() \t\r\n\f\v]+")
_FUNCTION = re.compile(r"[-=|]")


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent with its ``children``, or a word with its part-of-speech tag as ``label``."""

    label: str
    children: tuple[Tree, ...] = ()
    word: str | None = None


@dataclass(slots=True)
class _Bracket:
    """A bracket that is still open: what stands in it, and where it began."""

    start: int
    atoms: list[str] = field(default_factory=list[str])
    children: list[Tree] = field(default_factory=list[Tree])
    parts: int = 0


def read_trees(text: str, name: str) -> Iterator[Tree]:
    """The trees of a treebank file, each below a bracket called TOP.

    Empty elements (-NONE-) are left out with the constituents that hold nothing else, and so are
    function tags and indices (NP-SBJ-1 becomes NP, ADVP|PRT becomes ADVP). A tree without any word
    is left out.

    Args:
        text: the trees, with any white space between brackets
        name: of the file, for messages

    Raises:
        InputError: with the line, if a tree does not close, is empty, or is not one word or some
            constituents in every bracket. A bracket that is a word must be written -LRB- or -RRB-.
    """

    def error(position: int, problem: str) -> InputError:
        return InputError(f"{name}, line {text.count(chr(10), 0, position) + 1}: {problem}")

    stack: list[_Bracket] = []
    for match in _TOKEN.finditer(text):
        token, position = match[0], match.start()
        if token == "(":
            if len(stack) == MAX_DEPTH:
                raise error(position, f"the tree is more than {MAX_DEPTH} brackets deep")
            stack.append(_Bracket(position))
        elif not stack:
            raise error(position, f"{token!r} stands outside of any tree")
        elif token == ")":
            bracket = stack.pop()
            if problem := _problem(bracket, is_outer=not stack):
                raise error(bracket.start, problem)
            tree = _closed(bracket)
            if stack:
                stack[-1].parts += 1
                stack[-1].children += [] if tree is None else [tree]
            elif tree is not None:
                yield _below_top(tree)
        else:
            stack[-1].atoms.append(token)
    if stack:
        raise error(stack[0].start, "the tree that begins here does not close")


def _problem(bracket: _Bracket, *, is_outer: bool) -> str:
    """What is wrong with a bracket that is complete; empty if nothing is."""
    atoms, parts = bracket.atoms, bracket.parts
    if not atoms and not parts:
        return "the bracket is empty (brackets that are words are written -LRB- and -RRB-)"
    if not atoms and not is_outer:
        return "the bracket has no label"
    if len(atoms) == 1 and not parts:
        return f"the bracket ({atoms[0]}) holds no word"
    if len(atoms) > 2 or (len(atoms) == 2 and parts):
        return f"the bracket ({' '.join(atoms[:3])}…) holds more than one word or constituents"
    return ""


def _closed(bracket: _Bracket) -> Tree | None:
    """The tree of a bracket, or None if it holds no words."""
    if len(bracket.atoms) == 2:
        tag, word = bracket.atoms
        # White space other than ASCII's is part of a word in a treebank, and of none in a sentence.
        word = "".join(word.split())
        return None if tag == _EMPTY or not word else Tree(_plain(tag), word=word)
    label = _plain(bracket.atoms[0]) if bracket.atoms else ""
    return Tree(label, tuple(bracket.children)) if bracket.children else None


def _plain(label: str) -> str:
    """The label without function tags and indices; -LRB- and the like stay."""
    return label if label.startswith("-") else _FUNCTION.split(label, maxsplit=1)[0] or label


def _below_top(tree: Tree) -> Tree:
    is_outer = tree.word is None and tree.label in _OUTER
    return Tree(TOP, tree.children if is_outer else (tree,))


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
