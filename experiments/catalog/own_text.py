"""Experiments on a user's own text, sized by its amount."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from experiments.catalog.translation import TRANSLATION
from experiments.records.experiment import Experiment
from transformer.config import Config, override
from transformer.corpus import Corpus
from transformer.data.corpora.folders import folder_corpus
from transformer.data.text import stored_lines
from transformer.errors import InputError, unknown_name
from transformer.formats import size

FILES = "files:"
# With a region or a script, as in zh-CN or eng_Latn.
_LANGUAGE = r"([a-z]{2,3}(?:-[A-Z]\w+|_\w+)?)"
_LANGUAGES = re.compile(rf":{_LANGUAGE}-{_LANGUAGE}$")
# The most bytes of training text, both languages unpacked, that an experiment suits, as does the
# scale with its corpus. The built-in corpora have 0.44 MB (CLDR) and 3.9 MB (Multi30k) and, at 270
# bytes a pair as in newstest, 54 MB (News Commentary) and 1.2 GB (WMT14): a text gets the settings
# that were chosen on the corpus nearest in size, by ratio.
_SUITED = ((10**6, "cldr"), (15 * 10**6, "multi30k"), (250 * 10**6, "wmt14_en_de_small"))
_LARGEST = "wmt14_en_de_base"
# At most one word-piece for this many bytes: CLDR and Multi30k have one for 880 and 980.
_BYTES_PER_PIECE = 800
_LINES_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class Amount:
    """The amount of a corpus's training text.

    ``pairs`` are the lines of the source, ``bytes`` those of both languages unpacked, and
    ``characters`` the different ones in both. Of more than 250 MB as stored only the bytes are
    known, and ``pairs`` and ``characters`` are 0.
    """

    pairs: int
    bytes: int
    characters: int

    @property
    def like(self) -> str:
        """The experiment whose settings suit this amount."""
        return next((name for most, name in _SUITED if self.bytes <= most), _LARGEST)

    def word_pieces(self, pieces: int) -> int:
        """The size of a vocabulary: ``pieces``, or fewer if there is too little text for so many.

        It is at least twice the number of characters, as each of them is a word-piece.
        """
        if not self.characters:
            return pieces
        return max(min(pieces, self.bytes // _BYTES_PER_PIECE), 2 * self.characters)

    def __str__(self) -> str:
        pairs = f"{self.pairs:,} pairs, " if self.pairs else ""
        amount = size(self.bytes) if self.bytes > 10**5 else f"{self.bytes:,} bytes"
        return f"{pairs}{amount}"


def amount_of(corpus: Corpus) -> Amount:
    """The amount of the training text of a corpus of files that are here."""
    sources = dict.fromkeys(Path(text.source.location) for text in corpus.train)
    targets = dict.fromkeys(Path(text.target.location) for text in corpus.train)
    paths = [*(sources | targets)]
    stored = sum(path.stat().st_size for path in paths if path.is_file())
    if stored > _SUITED[-1][0]:
        return Amount(0, stored, 0)
    # A line that names the columns is not a pair.
    pairs = sum(1 - text.source.first_line for text in corpus.train)
    count, characters = 0, set[str]()
    for path in paths:
        for lines in stored_lines(path, _LINES_AT_ONCE):
            read = b"\n".join([*lines, b""])
            count += len(read)
            if path in sources:
                pairs += len(lines)
            characters.update(read.decode(errors="ignore"))
    return Amount(pairs, count, len([each for each in characters if not each.isspace()]))


def corpus_of_folder(name: str) -> Corpus:
    """The corpus that ``files:FOLDER`` or ``files:FOLDER:de-en`` names."""
    folder = name.removeprefix(FILES)
    languages = None
    if match := _LANGUAGES.search(folder):
        folder, languages = folder[: match.start()], (match[1], match[2])
    if not folder:
        raise InputError("files: needs a folder, as in files:my_corpus or files:my_corpus:de-en")
    return folder_corpus(folder, languages)


def experiment_of_folder(name: str, like: str | None = None) -> Experiment:
    """The text of ``files:FOLDER``, with the settings of the experiment ``like`` or, without, of
    one that suits its amount; its description says which.
    """
    corpus = corpus_of_folder(name)
    amount = amount_of(corpus)
    chosen = like or amount.like
    config = settings_of(chosen, corpus)
    config = override(config, vocab_size=amount.word_pieces(config.model.vocab_size))
    pair = f"{corpus.source_language}-{corpus.target_language}"
    return Experiment(
        name=f"files-{corpus.name}-{pair}",
        description=f"{name}, {pair}: {amount} of training text, with the settings of {chosen}",
        config=config,
        tags=("files",),
    )


def settings_of(like: str, corpus: Corpus) -> Config:
    """The configuration of the experiment ``like`` with another corpus."""
    if like not in TRANSLATION:
        raise unknown_name("experiment", like, TRANSLATION)
    return override(TRANSLATION[like][1], corpus=corpus)
