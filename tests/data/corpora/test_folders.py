"""Corpora of user files, in a folder or anywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from transformer.corpus import ParallelText, TextFile
from transformer.data.corpora.declared import sacrebleu_set
from transformer.data.corpora.folders import anchored, files_corpus, folder_corpus
from transformer.errors import InputError

PAIRS = ["train.en", "train.de", "valid.en", "valid.de"]


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_text("a line\n")
    return folder


@pytest.mark.parametrize("languages", [("en", "de"), ("de", "fr")])
def test_english_or_else_the_first_in_the_alphabet_is_the_source(
    languages: tuple[str, str], tmp_path: Path
) -> None:
    names = [f"{split}.{side}" for split in ("train", "valid", "test") for side in languages]
    corpus = folder_corpus(touch(tmp_path, *names))
    assert (corpus.source_language, corpus.target_language) == languages
    assert corpus.name == tmp_path.name
    assert [file.location for file in corpus.files] == [str(tmp_path / name) for name in names]


def test_the_languages_can_be_chosen_and_swapped(tmp_path: Path) -> None:
    touch(tmp_path, *PAIRS, "train.fr", "valid.fr")
    corpus = folder_corpus(tmp_path, ("de", "en"))
    (text,) = corpus.train
    assert text.source.location == str(tmp_path / "train.de")
    assert text.target.location == str(tmp_path / "train.en")


def test_compressed_files_are_found_and_the_test_set_may_be_missing(tmp_path: Path) -> None:
    names = ["train.en.gz", "train.de", "valid.en.xz", "valid.de.bz2"]
    corpus = folder_corpus(touch(tmp_path, *names))
    assert [Path(file.location).name for file in corpus.files] == names
    assert corpus.test is None


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (PAIRS[:3], "holds no valid.de"),
        ([*PAIRS, "test.en"], "holds no test.de"),
        ([*PAIRS, "train-b.de"], "holds no train-b.en"),
        ([*PAIRS, "train.en.gz"], r"holds train\.en and train\.en\.gz: remove all but"),
        ([*PAIRS, "train.fr"], r".*\(found: en, de, fr\); name them as in files:FOLDER"),
        (PAIRS[:1], r"must hold train\.SOURCE and train\.TARGET for two languages \(found: en\)"),
        ([], r"must hold train\.SOURCE and train\.TARGET for two languages \(found: none\)"),
    ],
)
def test_a_missing_or_ambiguous_file_is_named(
    names: list[str], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"^{tmp_path} {problem}"):
        folder_corpus(touch(tmp_path, *names))
    with pytest.raises(InputError, match=f"{tmp_path}/none is not a folder"):
        folder_corpus(tmp_path / "none")


def test_further_training_texts_are_ordered_by_name(tmp_path: Path) -> None:
    touch(tmp_path, "train-news.2012.en", "train-news.2012.de.xz", "train-acts.en.gz")
    corpus = folder_corpus(touch(tmp_path, "train-acts.de", *PAIRS))
    assert [Path(file.location).name for file in corpus.files[:6]] == [
        "train.en", "train.de", "train-acts.en.gz", "train-acts.de",
        "train-news.2012.en", "train-news.2012.de.xz",
    ]  # fmt: skip
    for name in ("train.en", "train.de"):  # one named text is enough
        (tmp_path / name).unlink()
    assert len(folder_corpus(tmp_path).train) == 2


def test_only_relative_paths_are_resolved(tmp_path: Path) -> None:
    own = ParallelText(source=TextFile(location="a/x.en"), target=TextFile(location="/b/x.de"))
    builtin = TextFile(location="builtin:x/x.en")
    corpus = files_corpus("mine", languages=("en", "de"), train=[("a", "b")], valid=("a", "b"))
    corpus = replace(
        corpus, train=(own, replace(own, source=builtin)), valid=sacrebleu_set("wmt13", "en-de")
    )
    assert [file.location for file in anchored(corpus, tmp_path).files] == [
        f"{tmp_path}/a/x.en", "/b/x.de", "builtin:x/x.en", "/b/x.de",
        "sacrebleu:wmt13/en-de/source", "sacrebleu:wmt13/en-de/reference",
    ]  # fmt: skip
