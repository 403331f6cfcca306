"""What a prepared corpus holds, for training and evaluation to read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from transformer.config import from_dict
from transformer.data.buckets import Buckets
from transformer.data.manifest import Manifest
from transformer.data.store import TokenStore
from transformer.data.text import read_text
from transformer.data.vocabulary import Vocabulary

VOCABULARY_FILE = "vocabulary.model"
REPORT_FILE = "report.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class TextReport:
    """What became of the ``lines`` of one text: pairs kept, and dropped by reason."""

    split: str
    text: str
    lines: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreparedCorpus:
    """A prepared folder: the vocabulary, each split's word-pieces, and the text to score."""

    directory: Path
    manifest: Manifest

    @property
    def vocabulary_file(self) -> Path:
        """The model of sentencepiece."""
        return self.directory / VOCABULARY_FILE

    def vocabulary(self) -> Vocabulary:
        """The trained vocabulary."""
        return Vocabulary(self.vocabulary_file)

    def has(self, split: str) -> bool:
        """Whether the corpus has this split."""
        return (self.directory / split).is_dir()

    def store(self, split: str) -> TokenStore:
        """The word-pieces of ``train``, ``valid`` or ``test``."""
        return TokenStore(self.directory / split, vocab_size=len(self.vocabulary()))

    def buckets(self) -> Buckets:
        """The training pairs by length."""
        return Buckets.load(self.directory / "train")

    def text(self, split: str) -> tuple[list[str], list[str]]:
        """Source and reference lines of ``valid`` or ``test``."""
        directory = self.directory / split
        return read_text(directory / "source.txt"), read_text(directory / "reference.txt")

    def report(self) -> list[TextReport]:
        """What became of each text."""
        path = self.directory / REPORT_FILE
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [from_dict(TextReport, entry, str(path)) for entry in entries]
