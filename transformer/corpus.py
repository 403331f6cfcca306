"""The declaration of a corpus."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from transformer.errors import InputError, without_secrets
from transformer.files import expand_user

Task = Literal["translation", "parsing"]


def _check_count(name: str, value: object) -> None:
    if value is not None and type(value) is not int:
        raise InputError(f"{name} is {value!r}, but must be a whole number or none")


def _check_strings(*values: object) -> None:
    if not all(isinstance(value, str) for value in values):
        raise InputError(f"name, languages and licence of a corpus are strings, not {values}")


def check_address(address: str, what: str) -> None:
    """Check that the password in an address can be recognised; the message does not repeat it."""
    try:
        is_sound = urlsplit(address).port != 0 and not re.search(r"\s", address)
    except ValueError:  # a password with a slash looks like a port
        is_sound = False
    if not is_sound:
        raise InputError(
            f"{what} cannot be read: write a password's special characters in per cent, such as "
            "%2F for /, %40 for @ and %20 for a space"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TextFile:
    """One side of one parallel text.

    ``location`` is one of

    - an ``https://`` address, fetched to the cache, or from ``DATA_MIRROR``
    - a path
    - ``sacrebleu:SET/PAIR/SIDE``, a side (``source`` or ``reference``) of a test set that
      sacreBLEU knows, such as ``sacrebleu:wmt14/full/en-de/source``
    - ``builtin:NAME/FILE`` for a text of an archive that comes with this package
    - ``treebank:SOURCE/SPLIT.SIDE`` for sentences or linearised trees of a treebank, see
      ``transformer.parsing.treebanks.TreebankText``

    Files ending in .gz, .xz or .bz2 are decompressed on reading. ``sha256``, which a download
    requires, and ``bytes`` are of the file as stored. If ``location`` is an archive, ``member`` is
    the name of the text in it; if it is a table, ending in .tsv (and .gz, .xz or .bz2), a column:
    its name in the first line or, of a table without names, its number from 1 on.

    A user, a password and a query of an address are not kept in ``location``, which is recorded and
    shown: this process, and those that it starts, have them for the download.
    """

    location: str
    sha256: str | None = None
    bytes: int | None = None
    member: str | None = None

    def __post_init__(self) -> None:
        _check_count("bytes", self.bytes)
        if self.is_download:
            self._put_secrets_away()
        if "://" in self.location and not self.is_download:
            raise InputError(f"{self.location} is not an https:// address: fetch it; give its path")
        if self.location.encode(errors="replace").decode() != self.location:  # JSON cannot hold it
            raise InputError(f"{self.location!r} has a name that is not UTF-8: rename it")
        # Kept in the cache under these paths; configurations of others must not choose the place.
        for path in (self.location.partition("://")[2], self.member or ""):
            if path.startswith("/") or ".." in path.split("/"):
                raise InputError(f"{self.name} leads out of the cache: name no '..' or root")
        if self.sha256 is not None and not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise InputError(f"{self.name} has sha256={self.sha256!r}, not 64 digits, 0-9 and a-f")

    def _put_secrets_away(self) -> None:
        check_address(self.location, "an address of the corpus")
        if self.sha256 is None:
            raise InputError(f"{self.location} is a download and needs its sha256")
        if (location := without_secrets(self.location)) != self.location:
            address = self.location
            object.__setattr__(self, "location", location)
            os.environ[self._variable] = address

    @property
    def _variable(self) -> str:
        """The environment variable with the whole address, which no file should contain."""
        key = hashlib.sha256(f"{self.location} {self.sha256}".encode()).hexdigest()
        return f"DATA_ADDRESS_{key[:16]}"

    @property
    def address(self) -> str:
        """Where to download it from."""
        return os.environ.get(self._variable) or self.location.partition("?")[0]

    @property
    def is_download(self) -> bool:
        """Whether it is downloaded from its own address."""
        return self.location.startswith(("http://", "https://"))

    @property
    def name(self) -> str:
        """Its name in messages."""
        if self.is_column:
            return f"column {self.member} of {self.location}"
        return self.location if self.member is None else f"{self.member} of {self.location}"

    @property
    def is_column(self) -> bool:
        """Whether it is a column of a table."""
        found = re.search(r"\.tsv(\.(gz|xz|bz2))?(\?.*)?$", self.location)
        return self.member is not None and found is not None

    @property
    def first_line(self) -> int:
        """The number of the line with which the text begins: a table may name its columns first."""
        return 2 if self.is_column and not str(self.member).isdigit() else 1

    @property
    def is_path(self) -> bool:
        """Whether ``location`` is a path."""
        return not re.match(r"https?://|sacrebleu:|builtin:|treebank:", self.location)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelText:
    """Two files that are aligned line by line.

    A text to score may have further ``references``, each aligned with the source too: BLEU and
    chrF use them all, and perplexity the target alone.
    """

    source: TextFile
    target: TextFile
    references: tuple[TextFile, ...] = ()

    @property
    def files(self) -> tuple[TextFile, ...]:
        """Source, target and further references."""
        return (self.source, self.target, *self.references)


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """A named corpus and its splits.

    The languages are codes of ISO 639, such as ``zh``, ``zho`` or ``zho_Hans``. Several training
    texts are concatenated in order and shuffled as a whole. ``pairs`` is their approximate number,
    for estimates before anything is read. The targets of ``parsing`` are linearised trees, whose
    brackets stay whole in the vocabulary; their language is ``trees``.
    """

    name: str
    source_language: str
    target_language: str
    licence: str
    train: tuple[ParallelText, ...]
    valid: ParallelText
    test: ParallelText | None = None
    pairs: int | None = None
    task: Task = "translation"

    def __post_init__(self) -> None:
        _check_count("pairs", self.pairs)
        _check_strings(self.name, self.source_language, self.target_language, self.licence)
        if not self.name or "/" in self.name:
            raise InputError(f"corpus name {self.name!r} becomes a folder name and cannot be one")
        if not self.train:
            raise InputError(f"the corpus {self.name} declares no training text")
        if self.task not in get_args(Task):
            raise InputError(f"task is {self.task!r}, but must be {' or '.join(get_args(Task))}")
        try:
            _ = [file.location for file in self.files]
            has_several = any(text.references for text in self.train)
        except (AttributeError, TypeError) as error:
            raise InputError(
                f"the corpus {self.name} needs train=(ParallelText(…), …) and valid=ParallelText(…)"
            ) from error
        if has_several or (self.task == "parsing" and len(self.files) != 2 * len(self.texts)):
            kind = "training text" if has_several else "trees"
            raise InputError(f"the corpus {self.name} has {kind} with several references: give one")

    def placed(self, folder: Path | None) -> Corpus:
        """A copy with relative paths resolved against ``folder``.

        With None, file names replace the paths: on another machine the text may lie elsewhere, and
        its checksums identify it.
        """

        def file(side: TextFile) -> TextFile:
            if not side.is_path:
                return side
            path = (folder or Path()) / expand_user(side.location)
            # A link keeps its own name, whose ending says how to read it.
            location = str(path.parent.resolve() / path.name) if folder else path.name
            return replace(side, location=location)

        def text(text: ParallelText) -> ParallelText:
            return ParallelText(
                source=file(text.source),
                target=file(text.target),
                references=tuple(map(file, text.references)),
            )

        return replace(
            self,
            train=tuple(map(text, self.train)),
            valid=text(self.valid),
            test=None if self.test is None else text(self.test),
        )

    @property
    def measure(self) -> str:
        """The main score of its outputs: ``bleu``, or ``f1`` for trees."""
        return "f1" if self.task == "parsing" else "bleu"

    @property
    def splits(self) -> dict[str, tuple[ParallelText, ...]]:
        """The texts of each split by name; ``test`` may be missing."""
        splits = {"train": self.train, "valid": (self.valid,)}
        return splits if self.test is None else splits | {"test": (self.test,)}

    @property
    def texts(self) -> list[ParallelText]:
        """Every text, split by split."""
        return [text for split in self.splits.values() for text in split]

    @property
    def files(self) -> tuple[TextFile, ...]:
        """Source, target and further references of every text, split by split."""
        return tuple(file for text in self.texts for file in text.files)
