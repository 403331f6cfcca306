"""Corpora of sentences and their linearised constituency trees."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.data.text import MAX_TEXT
from transformer.errors import InputError
from transformer.files import expand_user
from transformer.parsing.trees import Leaves, linearise, read_trees, words
from transformer.progress import show_progress

Split = Literal["train", "valid", "test"]

SENTENCES = "sentences"
_SIDES = (SENTENCES, *get_args(Leaves))
_LOCATION = re.compile(
    r"treebank:(?P<source>.+)/(?P<split>train|valid|test)(-(?P<max_words>\d+))?\.(?P<side>\w+)"
)

# Incremented when the same trees would give other lines.
_FORMAT = 3

_CRAFT = (
    "https://raw.githubusercontent.com/UCDenver-ccp/CRAFT/"
    "2abe82b8bb8089448b84937d5f61d8c218011322/structural-annotation/treebank/penn"
)
# Checksums of its articles, in the order of their names; also for sha256sum --check.
_CRAFT_SUMS = Path(__file__).with_name("craft.sha256")
_CRAFT_ARTICLES = {"train": slice(77), "valid": slice(77, 87), "test": slice(87, 97)}

# Section 6.3 of the paper.
_WSJ_SECTIONS = {"train": range(2, 22), "valid": range(22, 23), "test": range(23, 24)}
# Below the folder that the user names.
_WSJ_FOLDERS = ("", "wsj", "mrg/wsj", "parsed/mrg/wsj", "combined/wsj")


@dataclass(frozen=True, slots=True)
class TreebankText:
    """One side of one split of a treebank.

    Its location is ``treebank:SOURCE/SPLIT.SIDE`` or ``treebank:SOURCE/SPLIT-N.SIDE``. SOURCE is
    ``craft``, ``penn`` for the Penn Treebank in the folder that ``PENN_TREEBANK`` names, or the
    folder ``wsj`` of one; N is the length of the longest sentences that are taken, in words; SIDE
    is ``sentences`` or what stands for words in linearised trees.
    """

    source: str
    split: Split
    max_words: int | None
    side: str

    @classmethod
    def of(cls, location: str) -> TreebankText:
        """The text at a location."""
        match = _LOCATION.fullmatch(location)
        if match is None or match["side"] not in _SIDES:
            raise InputError(
                f"{location} is not a text of a treebank: write treebank:SOURCE/SPLIT.SIDE, as "
                f"treebank:craft/train.{SENTENCES}"
            )
        longest = int(match["max_words"]) if match["max_words"] else None
        return cls(match["source"], cast(Split, match["split"]), longest, match["side"])

    def files(self) -> list[TextFile]:
        """The files of trees, in order: downloads, or the user's own."""
        if self.source == "craft":
            lines = _CRAFT_SUMS.read_text(encoding="utf-8").splitlines()
            sums = (line.split() for line in lines[_CRAFT_ARTICLES[self.split]])
            return [TextFile(location=f"{_CRAFT}/{name}", sha256=sha256) for sha256, name in sums]
        folder = Path(self.source)
        if self.source == "penn":
            if not (given := os.environ.get("PENN_TREEBANK")):
                raise InputError("set PENN_TREEBANK to the folder of your Penn Treebank (LDC99T42)")
            folder = _wsj(Path(given))
        return [
            TextFile(location=str(path))
            for section in _WSJ_SECTIONS[self.split]
            for path in _section(folder, section)
        ]

    def folder_name(self, checksums: Sequence[str]) -> str:
        """The name of a folder for all sides of this split, by the SHA-256 of each file."""
        parts = [_FORMAT, self.split, self.max_words, checksums]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        return f"{Path(self.source).name}-{self.split}-{key}"

    def write(self, directory: Path, files: Iterable[Path]) -> None:
        """Make a directory with a text for each side, of a line for each tree in ``files``."""
        directory.mkdir()
        lines: dict[str, list[str]] = {side: [] for side in _SIDES}
        with show_progress(f"{self.split} trees", len(self.files())) as update:
            for number, path in enumerate(files, 1):
                for tree in read_trees(_content(path), str(path)):
                    sentence = words(tree)
                    if self.max_words is None or len(sentence) <= self.max_words:
                        lines[SENTENCES].append(" ".join(sentence))
                        for leaves in get_args(Leaves):
                            lines[leaves].append(linearise(tree, leaves))
                update(number)
        for side, written in lines.items():
            content = "".join(f"{line}\n" for line in written)
            (directory / side).write_text(content, encoding="utf-8")


def _content(path: Path) -> str:
    if path.stat().st_size > MAX_TEXT:
        raise InputError(f"{path} has more than {MAX_TEXT:,} bytes: split it")
    try:
        return path.read_text(encoding="utf-8-sig")  # a byte-order mark is no word
    except UnicodeDecodeError as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _wsj(folder: Path) -> Path:
    """The folder of the sections in or below ``folder``."""
    folder = expand_user(folder).resolve()
    found = [folder / below for below in _WSJ_FOLDERS if any((folder / below).glob("[0-2][0-9]"))]
    if not found:
        raise InputError(
            f"{folder} holds no sections of the Penn Treebank: name the folder of "
            "wsj/02/*.mrg to wsj/23/*.mrg"
        )
    return found[0]


def _section(folder: Path, number: int) -> list[Path]:
    """The files of a section of the Penn Treebank, in the order of their names."""
    files = sorted(x for x in (folder / f"{number:02d}").glob("*") if x.suffix.lower() == ".mrg")
    if not files:
        raise InputError(
            f"{folder} lacks the *.mrg of section {number:02d}: training takes 02 to 21, "
            "validation 22, the test 23"
        )
    return files


def leaves_of(corpus: Corpus) -> Leaves:
    """The leaves of the linearised trees of ``corpus``; XX for a user's own lines."""
    location = corpus.valid.target.location
    if not location.startswith("treebank:"):
        return "XX"
    return cast(Leaves, TreebankText.of(location).side)


def _corpus(
    name: str, source: str, licence: str, leaves: Leaves, limit: str, pairs: int | None
) -> Corpus:
    def text(split: Split) -> ParallelText:
        sentences, trees = (
            TextFile(location=f"treebank:{source}/{split}{limit}.{side}")
            for side in (SENTENCES, leaves)
        )
        return ParallelText(source=sentences, target=trees)

    return Corpus(
        name=name,
        task="parsing",
        source_language="en",
        target_language="trees",
        licence=licence,
        train=(text("train"),),
        valid=text("valid"),
        test=text("test"),
        pairs=pairs,
    )


def _penn(name: str, source: str) -> Corpus:
    return _corpus(name, source, "LDC99T42, the user's own copy", "XX", "", 39_832)


def penn_treebank(folder: Path) -> Corpus:
    """The Wall Street Journal of the Penn Treebank in the user's folder, with the paper's sections.

    Args:
        folder: as the Linguistic Data Consortium lays it out, or a folder in it down to ``wsj``,
            which holds the sections ``02/*.mrg`` to ``23/*.mrg``
    """
    corpus = _penn("penn_treebank", str(_wsj(folder)))
    for file in corpus.files:
        TreebankText.of(file.location).files()  # raises at once if a section is missing
    return corpus


# The Colorado Richly Annotated Full Text corpus: 97 biomedical articles, 30,830 trees; the split by
# article in the order of names is ours. The leaves are words, because a small model finds its place
# in a sentence by them, but loses count of equal XX.
_LICENCE = "CC BY 3.0, University of Colorado"
CRAFT = _corpus("craft", "craft", _LICENCE, "words", "", 23_657)
# Its sentences of at most 12 words, which a model learns in minutes.
CRAFT_SHORT = _corpus("craft_12", "craft", _LICENCE, "words", "-12", None)
# The user's own copy, in the folder that PENN_TREEBANK names on each machine.
PENN = _penn("penn", "penn")
