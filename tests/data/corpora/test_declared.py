"""The declared corpora, and refused declarations."""

from __future__ import annotations

import itertools
import os
import re
from typing import Any

import pytest

from transformer.config import from_dict, to_dict
from transformer.corpus import Corpus, TextFile
from transformer.data.corpora import declared as corpora
from transformer.data.fetch.texts import fetch
from transformer.data.text import read_aligned
from transformer.errors import InputError

DECLARED = [corpus for corpus in vars(corpora).values() if isinstance(corpus, Corpus)]
declared = pytest.mark.parametrize("corpus", DECLARED, ids=lambda corpus: corpus.name)


@declared
def test_a_declared_corpus_is_sane(corpus: Corpus) -> None:
    languages = corpus.source_language, corpus.target_language
    assert len(set(languages)) == 2 and all(re.fullmatch("[a-z]{2}", x) for x in languages)
    assert corpus.licence and corpus.train
    places = [(file.location, file.member) for file in corpus.files]
    assert len(set(places)) == len(places)
    for file, language in zip(corpus.files, itertools.cycle(languages)):
        if not file.location.startswith("sacrebleu:"):
            assert re.search(rf"\.{language}(\.gz|\.xz)?$", file.member or file.location)
        if not file.location.startswith(("builtin:", "sacrebleu:")):
            assert file.location.startswith("https://")
            assert file.sha256 is not None and re.fullmatch("[0-9a-f]{64}", file.sha256)
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


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {"location": "https://host/a.gz"},
            r"https://host/a\.gz is a download and needs its sha256",
        ),
        ({"location": "ftp://host/a.gz"}, "ftp://host/a.gz is no https:// address"),
        ({"location": "s3://bucket/a.gz"}, "s3://bucket/a.gz is no https:// address"),
        ({"location": "a.gz", "bytes": 0}, "bytes is 0, but must be at least 1"),
    ],
)
def test_a_bad_declaration_is_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        TextFile(**values)
