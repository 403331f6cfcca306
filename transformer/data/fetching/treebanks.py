"""Sentences and linearised trees, written line by line from the files of a treebank."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import get_args

from transformer.corpus import TextFile
from transformer.data.corpora.treebanks import SENTENCES, TreebankText
from transformer.data.fetching.cache import cache_directory, sha256_of
from transformer.data.fetching.download import fetch_download
from transformer.data.linearised import Leaves, linearise
from transformer.data.trees import Tree, read_trees, words
from transformer.errors import InputError
from transformer.progress import show_progress

# Incremented when the same trees would give other lines.
_FORMAT = 2


def directory_of(text: TreebankText) -> Path:
    """The folder in the cache for all sides of ``text``, named by the content of the trees.

    Raises:
        InputError: if the user's own files of trees are missing.
    """
    contents = [file.sha256 or sha256_of(Path(file.location)) for file in text.files()]
    parts = [_FORMAT, text.split, text.max_words, contents]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return cache_directory() / "treebanks" / f"{Path(text.source).name}-{key}"


def lacking(text: TreebankText) -> list[TextFile]:
    """The downloads from which ``text`` has yet to be written."""
    files = text.files()
    if directory_of(text).exists():
        return []
    return [file for file in files if file.is_download]


def write_sides(text: TreebankText, directory: Path) -> None:
    """Write ``train.sentences``, ``train.XX``, ``train.tags`` and so on, a line for each tree.

    Raises:
        InputError: if a file cannot be fetched, is not UTF-8, or holds anything but trees.
    """
    files = text.files()
    sides: dict[str, Callable[[Tree], str]] = {
        SENTENCES: lambda tree: " ".join(words(tree)),
        **{kind: partial(linearise, leaves=kind) for kind in get_args(Leaves)},
    }
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
            for tree in read_trees(_text(path), str(path)):
                if text.max_words is None or len(words(tree)) <= text.max_words:
                    for side, line in sides.items():
                        out[side].write(f"{line(tree)}\n")
            update(number)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
