"""Sentences and linearised trees from a treebank's files."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import get_args

from transformer.corpus import TextFile
from transformer.data.corpora.treebanks import SENTENCES, TreebankText
from transformer.data.fetch.cache import cache_directory, sha256_of, write_once
from transformer.data.fetch.download import fetch_download
from transformer.data.linearised import Leaves, linearise
from transformer.data.trees import read_trees, words
from transformer.errors import InputError
from transformer.progress import show_progress

# Incremented when the same trees would give other lines.
_FORMAT = 2


def treebank_side(location: str) -> Path:
    """A text file with the side of a treebank that a ``treebank:`` location names."""
    text = TreebankText.of(location)
    return write_once(_directory(text), partial(_write, text)) / text.file_name(text.side)


def missing_trees(location: str) -> list[TextFile]:
    """The downloads from which that side has yet to be written."""
    text = TreebankText.of(location)
    if _directory(text).exists():
        return []
    return [file for file in text.files() if file.is_download]


def _directory(text: TreebankText) -> Path:
    """The folder in the cache for all sides of ``text``, named by the content of the trees."""
    contents = [file.sha256 or sha256_of(Path(file.location)) for file in text.files()]
    parts = [_FORMAT, text.split, text.max_words, contents]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return cache_directory() / "treebanks" / f"{Path(text.source).name}-{key}"


def _write(text: TreebankText, directory: Path) -> None:
    """Write ``train.sentences``, ``train.XX``, ``train.words`` and so on, a line for each tree."""
    files = text.files()
    sides = [SENTENCES, *get_args(Leaves)]
    with ExitStack() as stack:
        out = {
            side: stack.enter_context(
                (directory / text.file_name(side)).open("w", encoding="utf-8", newline="\n")
            )
            for side in sides
        }
        update = stack.enter_context(show_progress(f"{text.split} trees", len(files)))
        for number, file in enumerate(files, 1):
            path = fetch_download(file) if file.is_download else Path(file.location)
            for tree in read_trees(_content(path), str(path)):
                sentence = words(tree)
                if text.max_words is None or len(sentence) <= text.max_words:
                    out[SENTENCES].write(f"{' '.join(sentence)}\n")
                    for leaves in get_args(Leaves):
                        out[leaves].write(f"{linearise(tree, leaves)}\n")
            update(number)


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
