"""Declared corpora, and corpora in a user's own folder."""

from __future__ import annotations

import os
import re

import pytest

from transformer.config import Corpus, TextFile, from_dict, to_dict
from transformer.data import corpora, news
from transformer.data.fetch import fetch
from transformer.data.text import aligned_lines
from transformer.errors import InputError

DECLARED = [
    corpus
    for corpus in (*vars(corpora).values(), *vars(news).values())
    if isinstance(corpus, Corpus)
]
declared = pytest.mark.parametrize("corpus", DECLARED, ids=lambda corpus: corpus.name)


def files(corpus: Corpus) -> list[TextFile]:
    return [
        side for texts in corpus.splits.values() for text in texts
        for side in (text.source, text.target)
    ]  # fmt: skip


def test_names_are_unique() -> None:
    assert len({corpus.name for corpus in DECLARED}) == len(DECLARED) >= 8


@declared
def test_a_declared_corpus_is_sane(corpus: Corpus) -> None:
    assert re.fullmatch("[a-z]{2}", corpus.source_language)
    assert re.fullmatch("[a-z]{2}", corpus.target_language)
    assert corpus.source_language != corpus.target_language
    assert corpus.licence and corpus.train
    for file in files(corpus):
        if file.location.startswith(("builtin:", "sacrebleu:")):
            continue
        assert file.location.startswith(("https://", "local:"))
        assert file.sha256 is not None and re.fullmatch("[0-9a-f]{64}", file.sha256)


@declared
def test_every_text_of_a_declared_corpus_is_a_text_of_its_own(corpus: Corpus) -> None:
    places = [(file.location, file.member) for file in files(corpus)]
    assert len(set(places)) == len(places)
    for texts in corpus.splits.values():
        for text in texts:
            for side, language in (
                (text.source, corpus.source_language),
                (text.target, corpus.target_language),
            ):
                name = side.member or side.location
                if not name.startswith("sacrebleu:"):
                    assert re.search(rf"\.{language}(\.gz|\.xz)?$", name)


@declared
def test_a_corpus_survives_json(corpus: Corpus) -> None:
    assert from_dict(Corpus, to_dict(corpus)) == corpus


@pytest.mark.parametrize(
    "corpus", [corpora.MULTI30K_EN_DE, corpora.MULTI30K_EN_FR], ids=["de", "fr"]
)
@pytest.mark.skipif("DATA_MIRROR" not in os.environ, reason="needs a DATA_MIRROR with Multi30k")
def test_multi30k_is_what_was_declared(corpus: Corpus) -> None:
    counts = {
        split: sum(1 for _ in aligned_lines(fetch(text.source), fetch(text.target)))
        for split, (text,) in corpus.splits.items()
    }
    assert counts == {"train": 29_000, "valid": 1_014, "test": 1_000}


def test_a_download_without_a_checksum_is_refused() -> None:
    with pytest.raises(InputError, match=r"https://host/a\.gz is a download and needs its sha256"):
        TextFile(location="https://host/a.gz")
