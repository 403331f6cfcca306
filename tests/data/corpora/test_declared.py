"""The declared corpora, and refused declarations."""

from __future__ import annotations

import os
import re

import pytest

from transformer.config import from_dict, to_dict
from transformer.corpus import Corpus, TextFile
from transformer.data.corpora import declared as corpora
from transformer.data.fetch.texts import fetch
from transformer.data.text import read_aligned
from transformer.errors import InputError

DECLARED = [corpus for corpus in vars(corpora).values() if isinstance(corpus, Corpus)]
declared = pytest.mark.parametrize("corpus", DECLARED, ids=lambda corpus: corpus.name)


def test_names_are_unique() -> None:
    assert len({corpus.name for corpus in DECLARED}) == len(DECLARED) >= 6


@declared
def test_a_declared_corpus_is_sane(corpus: Corpus) -> None:
    assert re.fullmatch("[a-z]{2}", corpus.source_language)
    assert re.fullmatch("[a-z]{2}", corpus.target_language)
    assert corpus.source_language != corpus.target_language
    assert corpus.licence and corpus.train
    for file in corpus.files:
        if file.location.startswith(("builtin:", "sacrebleu:")):
            continue
        assert file.location.startswith("https://")
        assert file.sha256 is not None and re.fullmatch("[0-9a-f]{64}", file.sha256)


@declared
def test_texts_of_a_declared_corpus_are_distinct_and_in_their_language(corpus: Corpus) -> None:
    places = [(file.location, file.member) for file in corpus.files]
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
        split: len(read_aligned(fetch(text.source), fetch(text.target))[0])
        for split, (text,) in corpus.splits.items()
    }
    assert counts == {"train": 29_000, "valid": 1_014, "test": 1_000}


def test_a_download_without_a_checksum_is_refused() -> None:
    with pytest.raises(InputError, match=r"https://host/a\.gz is a download and needs its sha256"):
        TextFile(location="https://host/a.gz")


@pytest.mark.parametrize("location", ["ftp://host/a.gz", "s3://bucket/a.gz", "file:///a.gz"])
def test_another_kind_of_address_is_refused(location: str) -> None:
    with pytest.raises(InputError, match=f"{location} is no https:// address"):
        TextFile(location=location)


def test_a_size_of_zero_is_refused() -> None:
    with pytest.raises(InputError, match="bytes is 0, but must be at least 1"):
        TextFile(location="a.gz", bytes=0)


def test_the_papers_corpora_come_from_these_archives() -> None:
    """Sizes from the servers; both language pairs share three archives."""
    sizes = {
        corpus.name: sorted({file.bytes for file in corpus.files if file.bytes is not None})
        for corpus in (corpora.WMT14_EN_DE, corpora.WMT14_EN_FR, corpora.WMT14_EN_DE_SMALL)
    }
    shared = [80_418_416, 657_632_379, 918_311_367]
    assert sizes == {
        "wmt14_en_de": shared,
        "wmt14_en_fr": [*shared, 2_365_634_246, 2_595_102_720],
        "wmt14_en_de_small": shared[:1],
    }
    packed = [
        file.member for file in corpora.WMT14_EN_FR.files if (file.member or "")[-3:] == ".gz"
    ]
    assert packed == ["giga-fren.release2.fixed.en.gz", "giga-fren.release2.fixed.fr.gz"]
