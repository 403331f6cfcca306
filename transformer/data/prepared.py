"""A prepared corpus: its files, and their checksums."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from transformer.config import from_dict, to_dict
from transformer.corpus import ParallelText
from transformer.data.buckets import Buckets
from transformer.data.fetch.cache import sha256_of
from transformer.data.store import BYTES_PER_PAIR, LENGTHS_FILE, EncodedPairs
from transformer.data.text import read_text
from transformer.data.vocabulary import Vocabulary
from transformer.errors import BlockedError, InputError
from transformer.files import read_json, write_json

VOCABULARY_FILE = "vocabulary.model"
REPORT_FILE = "report.json"
MANIFEST_FILE = "manifest.json"
# Files up to this size are hashed at every start, which takes milliseconds; larger ones only if
# they are newer than the manifest.
_SMALL_BYTES = 2**24
_MAX_NAMES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Checksum:
    """A file's size and SHA-256."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The sources and the files of a prepared folder, with checksums.

    ``sources`` are the name and SHA-256 of each text, in the corpus's order, and ``files`` the
    prepared files by their path in the folder. ``digest`` covers all checksums but no names, so it
    is the same on every machine.
    """

    sources: tuple[tuple[str, str], ...]
    files: dict[str, Checksum]
    digest: str

    def pairs(self, split: str) -> int | None:
        """How many pairs of ``train``, ``valid`` or ``test`` were kept; None if there are none."""
        file = self.files.get(f"{split}/{LENGTHS_FILE}")
        return None if file is None else file.bytes // BYTES_PER_PAIR

    def refuse_other(self, found: Manifest) -> None:
        """Refuse ``found`` if it is other data than this, and name the files that differ."""
        names = sorted({*self.files, *found.files})
        refuse_changed([name for name in names if self.files.get(name) != found.files.get(name)])


def refuse_changed(names: Sequence[str]) -> None:
    """Refuse to continue a run if any file has changed; ``names`` are those that have."""
    if names:
        named = ", ".join(list(dict.fromkeys(names))[:_MAX_NAMES])
        raise BlockedError(
            f"the data is not what this run began with: {named} changed; restore it, or start a "
            "new run in another --directory"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TextReport:
    """How many of a text's ``lines`` were kept, and how many dropped, by reason."""

    split: str
    text: str
    lines: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)


def text_name(text: ParallelText) -> str:
    """A text's name for display: the end of its source's path, or the name of a test set."""
    file = text.source
    if file.location.startswith("sacrebleu:"):
        return file.location.removeprefix("sacrebleu:").rsplit("/", 2)[0]
    of_archive = None if file.is_column else file.member
    *folder, name = PurePosixPath(of_archive or file.location).parts[-2:]
    return "/".join([*folder, name.partition(".")[0]])


@dataclass(frozen=True, slots=True)
class PreparedCorpus:
    """A prepared folder: the vocabulary, the word-pieces of each split, and the text to score."""

    directory: Path
    manifest: Manifest

    @property
    def vocabulary_file(self) -> Path:
        """The file of the vocabulary."""
        return self.directory / VOCABULARY_FILE

    def vocabulary(self) -> Vocabulary:
        """The trained vocabulary."""
        return Vocabulary(self.vocabulary_file)

    def has(self, split: str) -> bool:
        """True if the corpus has this split."""
        return (self.directory / split).is_dir()

    def store(self, split: str) -> EncodedPairs:
        """The word-pieces of ``train``, ``valid`` or ``test``."""
        return EncodedPairs.open(self.directory / split)

    def buckets(self) -> Buckets:
        """The training pairs by length."""
        return Buckets.load(self.directory / "train")

    def text(self, split: str) -> tuple[list[str], list[str]]:
        """Source and reference lines of ``valid`` or ``test``."""
        directory = self.directory / split
        return read_text(directory / "source.txt"), read_text(directory / "reference.txt")

    def more_references(self, split: str) -> list[list[str]]:
        """The lines of each further reference of ``valid`` or ``test``."""
        paths = (self.directory / split).glob("reference-*.txt")
        numbered = sorted((int(path.stem.rpartition("-")[2]), path) for path in paths)
        return [read_text(path) for _, path in numbered]

    def report(self) -> list[TextReport]:
        """The numbers of lines kept and dropped, for each text."""
        return read_report(self.directory)


def read_report(directory: Path) -> list[TextReport]:
    """The report in a prepared folder."""
    entries = json.loads((directory / REPORT_FILE).read_text(encoding="utf-8"))
    return [from_dict(TextReport, entry) for entry in entries]


def write_report(directory: Path, report: Sequence[TextReport]) -> None:
    """Write the report that :func:`read_report` reads."""
    write_json(directory / REPORT_FILE, [to_dict(entry) for entry in report])


def make_manifest(directory: Path, sources: Sequence[tuple[str, str]]) -> Manifest:
    """The manifest of all files in ``directory``, which were made from ``sources``."""
    files = {
        str(path.relative_to(directory)): Checksum(
            bytes=path.stat().st_size, sha256=sha256_of(path)
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != MANIFEST_FILE
    }
    manifest = Manifest(sources=tuple(sources), files=files, digest="")
    return dataclasses.replace(manifest, digest=_digest(manifest))


def _digest(manifest: Manifest) -> str:
    files = {name: checksum.sha256 for name, checksum in sorted(manifest.files.items())}
    content = [[sha256 for _, sha256 in manifest.sources], files]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a prepared folder, or the copy of it in a run's directory."""
    # Manifests of committed runs have a field that is gone.
    manifest = from_dict(Manifest, read_json(path), str(path), strict=False)
    if manifest.digest != _digest(manifest):
        raise InputError(f"{path} is damaged (its digest does not match its checksums): restore it")
    return manifest


def damaged_files(directory: Path, *, whole: bool) -> list[str]:
    """The files of a prepared folder that are missing or have changed since they were written.

    Args:
        whole: read every byte; otherwise the check is quick at any size, but misses a change of
            a large file that kept its size and date
    """
    path = directory / MANIFEST_FILE
    try:
        manifest, written = read_manifest(path), path.stat().st_mtime_ns
    except InputError:
        return [MANIFEST_FILE]

    def is_sound(path: Path, checksum: Checksum) -> bool:
        if not path.is_file() or path.stat().st_size != checksum.bytes:
            return False
        is_trusted = checksum.bytes > _SMALL_BYTES and path.stat().st_mtime_ns <= written
        return (is_trusted and not whole) or sha256_of(path) == checksum.sha256

    return [
        name
        for name, checksum in manifest.files.items()
        if not is_sound(directory / name, checksum)
    ]
