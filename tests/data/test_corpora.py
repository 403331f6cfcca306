"""The declared corpora, the built-in one, and corpora of user files."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from transformer.config import from_dict, to_dict
from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.data.corpora import declared
from transformer.data.corpora.folders import files_corpus, folder_corpus
from transformer.data.fetch.cache import sha256_of
from transformer.data.fetch.texts import fetch
from transformer.data.prepared import read_manifest
from transformer.data.text import read_text
from transformer.errors import InputError

ROOT = Path(__file__).parents[2]
DECLARED = [corpus for corpus in vars(declared).values() if isinstance(corpus, Corpus)]


@pytest.mark.parametrize("corpus", DECLARED, ids=lambda corpus: corpus.name)
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


def test_other_addresses_than_https_are_refused() -> None:
    with pytest.raises(InputError, match=r"^ftp://host/a\.gz is not an https:// address"):
        TextFile(location="ftp://host/a.gz")


def test_the_built_in_corpus_is_that_of_the_committed_results() -> None:
    (path,) = (ROOT / "experiments" / "results" / "table3-quick").glob("data-*.json")
    files = declared.CLDR_EN_DE.files
    found = tuple((file.name, sha256_of(fetch(file))) for file in files)
    assert found == read_manifest(path).sources
    sides = [read_text(fetch(file)) for file in files]
    sources, targets = (set().union(*sides[side::2]) for side in (0, 1))
    assert len(sources) == len(targets) == 12_000
    known = {
        "British Pound": "Britisches Pfund",
        "French, Japanese, or English": "Französisch, Japanisch oder Englisch",
        "213 Chinese yuan": "213 Renminbi Yuan",
        "nine hundred and forty-six gigabytes": "neunhundertsechsundvierzig Gigabyte",
    }
    pairs = dict(pair for side in (0, 2, 4) for pair in zip(*sides[side : side + 2], strict=True))
    assert {english: pairs[english] for english in known} == known


@pytest.mark.parametrize("path", ["../../x", "/etc/x", "a/../../../x"])
def test_nothing_is_kept_outside_of_the_cache(path: str) -> None:
    with pytest.raises(InputError, match=f"^{path} of a.tgz leads out of the cache"):
        TextFile(location="a.tgz", member=path)
    with pytest.raises(InputError, match=f"^https://{path} leads out of the cache"):
        TextFile(location=f"https://{path}", sha256="0" * 64)
    with pytest.raises(InputError, match=r"^x of a.tgz has sha256=.*, not 64 digits"):
        TextFile(location="a.tgz", member="x", sha256=path)
    assert TextFile(location=f"../{path}", member="a..b/x")


PAIRS = ["train.en", "train.de", "valid.en", "valid.de"]


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_text("a line\n")
    return folder


@pytest.mark.parametrize(
    "languages",
    [("en", "de"), ("de", "fr"), ("eng_Latn", "deu_Latn"), ("eng", "deu"), ("de", "enb")],
)
def test_english_or_the_first_is_the_source(languages: tuple[str, str], tmp_path: Path) -> None:
    names = [f"{split}.{side}" for split in ("train", "valid", "test") for side in languages]
    corpus = folder_corpus(touch(tmp_path, *names))
    assert (corpus.source_language, corpus.target_language) == languages
    assert corpus.name == tmp_path.name
    assert [file.location for file in corpus.files] == [str(tmp_path / name) for name in names]
    swapped = folder_corpus(tmp_path, (languages[1], languages[0]))
    assert swapped.train[0].source == corpus.train[0].target


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (PAIRS[:3], "holds no valid.de"),
        ([*PAIRS, "test.sh", "test.en"], "holds no test.de"),
        ([*PAIRS, "train-b.de"], "holds no train-b.en"),
        ([*PAIRS, "train.en.gz"], r"holds train\.en and train\.en\.gz: remove all but"),
        ([*PAIRS, "train.fr"], r".*\(found: en, de, fr\); name them as in files:FOLDER"),
        (PAIRS[:1], r"must hold train\.SOURCE and train\.TARGET for two languages \(found: en\)"),
        ([], r"must hold train\.SOURCE and train\.TARGET for two languages \(found: none\)"),
    ],
)
def test_a_missing_or_unclear_file_is_named(names: list[str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{tmp_path} {problem}"):
        folder_corpus(touch(tmp_path, *names))
    with pytest.raises(InputError, match=f"{tmp_path}/none is not a folder"):
        folder_corpus(tmp_path / "none")


def test_what_is_no_pair_is_refused() -> None:
    wrong: Any
    for wrong in ("x.en", None, ("x.en",)):
        with pytest.raises(
            InputError, match=f"^{re.escape(repr(wrong))} is not a text of a corpus"
        ):
            files_corpus("mine", languages=("en", "de"), train=[wrong], valid=("a", "b"))


@pytest.mark.parametrize("wrong", [{"pairs": 4.5e4}, {"licence": None}, {"target_language": 3}])
def test_what_no_configuration_could_hold_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"is 45000\.0, but must be a whole number|are strings"):
        replace(declared.WMT14_EN_DE, **wrong)
    with pytest.raises(InputError, match="bytes is '166', but must be a whole number"):
        TextFile(location="a.txt", bytes=cast(Any, "166"))


def test_a_folder_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (folder := tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    with pytest.raises(InputError, match=r"caf\\udce9/train.en' has a name that is not UTF-8"):
        folder_corpus(touch(folder, *PAIRS))


def test_files_may_be_compressed_and_further_training_texts_are_ordered(tmp_path: Path) -> None:
    names = [
        "train.en", "train.de", "train-acts.en.gz", "train-acts.de",
        "train-news.2012.en", "train-news.2012.de.xz", "valid.en", "valid.de.bz2",
    ]  # fmt: skip
    corpus = folder_corpus(touch(tmp_path, *reversed(names)))
    assert [Path(file.location).name for file in corpus.files] == names
    assert corpus.test is None
    (tmp_path / "train-acts.en.gz").rename(tmp_path / "blob")
    (tmp_path / "train-acts.en.gz").symlink_to(tmp_path / "blob")  # as git-annex keeps files
    assert folder_corpus(tmp_path) == corpus == corpus.placed(tmp_path)
    for name in ("train.en", "train.de"):  # one named text is enough
        (tmp_path / name).unlink()
    assert len(folder_corpus(tmp_path).train) == 2


def test_further_references_have_numbers(tmp_path: Path) -> None:
    """As valid.de.1, or as Moses names them; a plain one comes first."""
    names = [
        "train.en", "train.de", "valid.en", "valid.de", "valid.de.2.gz", "valid.de.10",
        "test.en.xz", "test.de0", "test.de1.bz2",
    ]  # fmt: skip
    corpus = folder_corpus(touch(tmp_path, *reversed(names)))
    assert [Path(file.location).name for file in corpus.files] == names
    assert corpus.test is not None and len(corpus.test.references) == 1
    assert len(corpus.valid.references) == 2
    assert from_dict(Corpus, to_dict(corpus)) == corpus == corpus.placed(tmp_path)
    assert "references" not in to_dict(declared.MULTI30K_EN_DE)["valid"]  # as in earlier files
    with pytest.raises(InputError, match="has training text with several references: give one"):
        replace(corpus, train=(corpus.valid,))
    (tmp_path / "valid.de2").touch()
    with pytest.raises(InputError, match=r"holds valid\.de\.2\.gz and valid\.de2: remove all but"):
        folder_corpus(tmp_path)


def test_only_relative_paths_are_resolved(tmp_path: Path) -> None:
    own = ParallelText(source=TextFile(location="a/x.en"), target=TextFile(location="/b/x.de"))
    corpus = files_corpus("mine", languages=("en", "de"), train=[("a", "b")], valid=("a", "b"))
    known = declared.sacrebleu_set("wmt13", "en-de"), declared.CLDR_EN_DE.valid
    corpus = replace(corpus, train=(own, known[1]), valid=known[0])
    assert [file.location for file in corpus.placed(tmp_path).files] == [
        f"{tmp_path}/a/x.en", "/b/x.de", "builtin:cldr_en_de/valid.en",
        "builtin:cldr_en_de/valid.de", "sacrebleu:wmt13/en-de/source",
        "sacrebleu:wmt13/en-de/reference",
    ]  # fmt: skip
