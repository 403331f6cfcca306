"""The complete check of a corpus, downloads included."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.data.test_prepared import flip_a_bit
from tests.samples import archive, tiny, write_corpus
from transformer.config import Config
from transformer.corpus import ParallelText, TextFile
from transformer.data.corpora.folders import folder_corpus
from transformer.data.fetch.cache import cache_directory, sha256_of
from transformer.data.prepare.prepare import prepare
from transformer.data.prepare.verify import verify
from transformer.errors import InputError


@pytest.fixture
def downloaded_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The training text is in an archive and one validation file is a download, from a mirror."""
    folder = write_corpus(tmp_path / "numbers")
    host = tmp_path / "mirror" / "host"
    host.mkdir(parents=True)
    train = {f"x/train.{side}": (folder / f"train.{side}").read_bytes() for side in ("en", "de")}
    (host / "a.tgz").write_bytes(archive(train))
    (host / "valid.en").write_bytes((folder / "valid.en").read_bytes())
    monkeypatch.setenv("DATA_MIRROR", str(host.parent))

    def download(name: str, member: str | None = None) -> TextFile:
        sha256 = sha256_of(host / name)
        return TextFile(location=f"https://host/{name}", sha256=sha256, member=member)

    corpus = folder_corpus(folder)
    source, target = (download("a.tgz", member) for member in train)
    text = ParallelText(source=source, target=target)
    valid = dataclasses.replace(corpus.valid, source=download("valid.en"))
    return tiny(dataclasses.replace(corpus, train=(text,), valid=valid))


def test_a_freshly_prepared_corpus_is_intact(downloaded_config: Config) -> None:
    with pytest.raises(InputError, match="numbers is not prepared as it is now"):
        list(verify(downloaded_config))
    corpus = prepare(downloaded_config)
    checked = dict(verify(downloaded_config, corpus.manifest))
    assert set(checked.values()) == {""}
    downloads = cache_directory() / "downloads" / "host"
    members = {path for path in checked if Path(path).parts[-2:] in (("x", "train.en"),)}
    assert {downloads / "a.tgz", downloads / "valid.en"} < set(checked) and len(members) == 1
    # two downloads, two members, and all prepared files
    assert len(checked) == 4 + len(corpus.manifest.files)


@pytest.mark.parametrize(
    "name", ["downloads/host/a.tgz", "downloads/host/valid.en", "members/*/x/train.de",
             "prepared/numbers-*/train/tokens.u16", "prepared/numbers-*/manifest.json"],
)  # fmt: skip
def test_a_flipped_bit_is_found_although_size_and_date_are_unchanged(
    name: str, downloaded_config: Config
) -> None:
    noted = prepare(downloaded_config).manifest
    (path,) = cache_directory().glob(name)
    flip_a_bit(path, keep_date=True)
    problems = [each for each, problem in verify(downloaded_config, noted) if problem]
    assert problems == [path]


def test_a_different_preparation_than_the_runs_is_found(tiny_config: Config) -> None:
    corpus = prepare(tiny_config)
    checksum = dataclasses.replace(corpus.manifest.files["vocabulary.model"], sha256="0" * 64)
    files = corpus.manifest.files | {"vocabulary.model": checksum}
    noted = dataclasses.replace(corpus.manifest, files=files)
    problems = {str(path): problem for path, problem in verify(tiny_config, noted) if problem}
    assert problems == {str(corpus.vocabulary_file): "changed since the run began"}
