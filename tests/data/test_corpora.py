"""Declared corpora, and corpora in a user's own folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from transformer.config import Corpus, TextFile, from_dict, to_dict
from transformer.data import corpora
from transformer.data.corpora import files_corpus, folder_corpus
from transformer.data.fetch import fetch
from transformer.data.text import read_aligned
from transformer.errors import InputError

DECLARED = [corpus for corpus in vars(corpora).values() if isinstance(corpus, Corpus)]
declared = pytest.mark.parametrize("corpus", DECLARED, ids=lambda corpus: corpus.name)


def files(corpus: Corpus) -> list[TextFile]:
    return [
        side for texts in corpus.splits.values() for text in texts
        for side in (text.source, text.target)
    ]  # fmt: skip


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_text("a line\n")
    return folder


def test_names_are_unique() -> None:
    assert len({corpus.name for corpus in DECLARED}) == len(DECLARED) >= 4


@declared
def test_a_declared_corpus_is_sane(corpus: Corpus) -> None:
    assert re.fullmatch("[a-z]{2}", corpus.source_language)
    assert re.fullmatch("[a-z]{2}", corpus.target_language)
    assert corpus.source_language != corpus.target_language
    assert corpus.licence and corpus.train
    for file in files(corpus):
        if file.location.startswith("builtin:"):
            continue
        assert file.location.startswith("https://")
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
                assert re.search(rf"\.{language}(\.gz)?$", name)


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


def test_a_folder_of_two_languages_needs_nothing_said(tmp_path: Path) -> None:
    touch(tmp_path, "train.de", "train.en", "valid.de", "valid.en", "test.de", "test.en")
    corpus = folder_corpus(tmp_path)
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    assert corpus.name == tmp_path.name
    assert [file.location for file in files(corpus)] == [
        str(tmp_path / f"{split}.{language}")
        for split in ("train", "valid", "test")
        for language in ("en", "de")
    ]


def test_without_english_the_first_in_the_alphabet_is_the_source(tmp_path: Path) -> None:
    touch(tmp_path, "train.fr", "train.de", "valid.fr", "valid.de")
    corpus = folder_corpus(tmp_path)
    assert (corpus.source_language, corpus.target_language) == ("de", "fr")


def test_the_pair_may_be_named_and_turned_round(tmp_path: Path) -> None:
    touch(tmp_path, "train.en", "train.de", "train.fr", "valid.en", "valid.de", "valid.fr")
    corpus = folder_corpus(tmp_path, ("de", "en"))
    (text,) = corpus.train
    assert text.source.location == str(tmp_path / "train.de")
    assert text.target.location == str(tmp_path / "train.en")


def test_three_languages_ask_for_a_pair(tmp_path: Path) -> None:
    touch(tmp_path, "train.en", "train.de", "train.fr")
    with pytest.raises(InputError, match=r"found: en, de, fr\); name them as in files:FOLDER"):
        folder_corpus(tmp_path)


def test_packed_files_are_found_and_the_test_set_may_be_missing(tmp_path: Path) -> None:
    touch(tmp_path, "train.en.gz", "train.de", "valid.en.xz", "valid.de.bz2")
    corpus = folder_corpus(tmp_path)
    assert [Path(file.location).name for file in files(corpus)] == [
        "train.en.gz", "train.de", "valid.en.xz", "valid.de.bz2",
    ]  # fmt: skip
    assert corpus.test is None


@pytest.mark.parametrize("missing", ["valid.en", "valid.de", "test.de"])
def test_a_missing_file_is_named(missing: str, tmp_path: Path) -> None:
    touch(tmp_path, "train.en", "train.de", "valid.en", "valid.de", "test.en", "test.de")
    (tmp_path / missing).unlink()
    with pytest.raises(InputError, match=f"{tmp_path} holds no {missing}"):
        folder_corpus(tmp_path)


@pytest.mark.parametrize("names", [(), ("train.en",)])
def test_a_folder_without_training_text_of_two_is_refused(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    touch(tmp_path, *names)
    with pytest.raises(InputError, match=rf"{tmp_path} must hold train\.SOURCE and train\.TARGET"):
        folder_corpus(tmp_path)


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}/none is not a folder"):
        folder_corpus(tmp_path / "none")


def test_files_anywhere_make_a_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(touch(tmp_path, "a", "b", "c", "d"))
    corpus = files_corpus(
        "mine", languages=("en", "fi"), train=[("a", "b"), ("c", "d")], valid=("a", "d")
    )
    assert [Path(file.location) for file in files(corpus)] == [
        tmp_path / name for name in ("a", "b", "c", "d", "a", "d")
    ]
    assert list(corpus.splits) == ["train", "valid"]
