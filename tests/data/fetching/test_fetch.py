"""Fetching: mirrors, user files, archives and generated text; failures leave nothing behind."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import re
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.scripted_server import ScriptedServer, cut, status
from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.data.corpora import cldr
from transformer.data.corpora.declared import sacrebleu_set
from transformer.data.fetch import download
from transformer.data.fetch.cache import cache_directory, sha256_of
from transformer.data.fetch.texts import fetch, fetch_all, missing
from transformer.errors import InputError

CONTENT = b"one\ntwo\n" * 401
URL = "https://data.example.org/corpus/train.en.gz"
FILE = TextFile(location=URL, sha256=hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "sleep", lambda _: None)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(CONTENT).running() as running:
        yield running


def mirror_folder(folder: Path, content: bytes = CONTENT) -> Path:
    path = folder / URL.removeprefix("https://")
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def nothing_left_behind() -> bool:
    files = [path for path in cache_directory().rglob("*") if path.is_file()]
    return all(path.suffix == ".lock" for path in files)


def test_a_mirror_may_be_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = mirror_folder(tmp_path)
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path))
    path = fetch(FILE)
    assert path.read_bytes() == CONTENT
    assert path.name == "train.en.gz", "its ending says how to unpack it"
    assert cache_directory() in path.parents
    assert origin.read_bytes() == CONTENT


@pytest.mark.parametrize("end", ["", "/"])
def test_a_mirror_may_be_a_url(
    end: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_MIRROR", f"{server.url}{end}")
    assert fetch(FILE).read_bytes() == CONTENT
    assert server.paths == ["/data.example.org/corpus/train.en.gz"]


def test_without_a_mirror_the_declared_address_is_used(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATA_MIRROR", raising=False)
    file = TextFile(location=f"{server.url}/whole/train.en", sha256=FILE.sha256)
    assert fetch(file).read_bytes() == CONTENT
    assert server.paths == ["/whole/train.en"]


def test_an_unchanged_download_is_not_reread(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_MIRROR", server.url)
    path = fetch(FILE)
    monkeypatch.setattr(download, "sha256_of", lambda _: pytest.fail("it was read"))
    assert fetch(FILE) == path
    assert len(server.paths) == 1


def test_a_download_of_which_only_the_date_changed_is_kept(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_MIRROR", server.url)
    fetch(FILE).touch()
    assert fetch(FILE).read_bytes() == CONTENT
    assert len(server.paths) == 1


def test_an_altered_download_is_fetched_again(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_MIRROR", server.url)
    fetch(FILE).write_bytes(CONTENT[:-1])
    assert fetch(FILE).read_bytes() == CONTENT


def test_a_wrong_checksum_is_reported_with_the_expected_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    altered = CONTENT.replace(b"two", b"too", 1)
    origin = mirror_folder(tmp_path, altered)
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path))
    found = hashlib.sha256(altered).hexdigest()
    with pytest.raises(InputError, match=f"expected sha256 {FILE.sha256}, found {found}") as error:
        fetch(FILE)
    assert str(origin) in str(error.value) and f"({len(altered)} bytes)" in str(error.value)
    assert nothing_left_behind()


def test_a_mirror_that_lacks_the_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path))
    with pytest.raises(
        InputError, match=f"{tmp_path}/data.* does not exist: DATA_MIRROR lacks {URL}"
    ):
        fetch(FILE)
    assert nothing_left_behind()


def test_a_server_that_lacks_the_file_is_named(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = [status(404)]
    monkeypatch.setenv("DATA_MIRROR", f"{server.url}/elsewhere")
    with pytest.raises(InputError, match=f"{server.url}/elsewhere/data.* \\(HTTP 404\\)"):
        fetch(FILE)
    assert nothing_left_behind()


def test_without_a_network_the_message_names_the_address_and_the_mirror(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DATA_MIRROR", raising=False)
    with socket.socket() as free:  # bound, but not listening
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/train.en.gz"
        with pytest.raises(InputError, match=re.escape(url)) as error:
            fetch(TextFile(location=url, sha256=FILE.sha256))
    assert "DATA_MIRROR" in str(error.value) and "\n" not in str(error.value)
    assert nothing_left_behind()


def test_a_user_file_is_used_in_place(tmp_path: Path) -> None:
    path = tmp_path / "train.en"
    path.write_bytes(CONTENT)
    assert fetch(TextFile(location=str(path))) == path
    assert fetch(TextFile(location=str(path), sha256=FILE.sha256)) == path
    assert nothing_left_behind()


def test_a_user_file_is_verified_and_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "train.en"
    path.write_bytes(b"another\n")
    with pytest.raises(InputError, match=f"{path} is not the declared file: expected"):
        fetch(TextFile(location=str(path), sha256=FILE.sha256))
    assert path.exists()


def test_a_missing_user_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}/none does not exist"):
        fetch(TextFile(location=str(tmp_path / "none")))


def packed(content: bytes, *names: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name in names or ["training/train.en"]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


ARCHIVE = packed(CONTENT, "x.en", "x.de", "y.en", "y.de")


def corpus_of_archive() -> Corpus:
    """Two texts of an archive, a download, and a test set of sacreBLEU."""
    archive = {
        "location": "https://data.example.org/corpus.tgz",
        "sha256": hashlib.sha256(ARCHIVE).hexdigest(),
    }

    def text(stem: str) -> ParallelText:
        sides = (
            TextFile(**archive, bytes=len(ARCHIVE), member=f"{stem}.{language}")
            for language in ("en", "de")
        )
        return ParallelText(source=next(sides), target=next(sides))

    return Corpus(
        name="small",
        source_language="en",
        target_language="de",
        licence="",
        train=(text("x"), text("y")),
        valid=ParallelText(source=FILE, target=FILE),
        test=sacrebleu_set("wmt13", "en-de"),
    )


def test_a_corpus_is_fetched_in_one_pass_through_each_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_sacrebleu(tmp_path)
    monkeypatch.setenv("SACREBLEU", str(tmp_path))
    address = {"/data.example.org/corpus.tgz": ARCHIVE, f"/{URL[8:]}": CONTENT}
    read: list[str] = []
    real = tarfile.open
    monkeypatch.setattr(tarfile, "open", lambda **given: read.append("once") or real(**given))
    with ScriptedServer(address).running() as server:
        monkeypatch.setenv("DATA_MIRROR", server.url)
        paths = fetch_all(corpus_of_archive().splits)
        assert fetch_all(corpus_of_archive().splits) == paths
        assert len(server.paths) == 2
    assert read == ["once"]
    assert [[path.name for path in text] for text in paths["train"]] == [
        ["x.en", "x.de"], ["y.en", "y.de"],
    ]  # fmt: skip
    assert [path.read_text() for path in paths["test"][0]] == ["one\n", "eins\n"]


def fill_sacrebleu(folder: Path) -> None:
    (folder / "wmt13").mkdir()
    for field, line in (("src", "one\n"), ("ref", "eins\n")):
        (folder / "wmt13" / f"wmt13.en-de.{field}").write_text(line)


def test_what_is_missing_is_known_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU", str(tmp_path))
    corpus = corpus_of_archive()
    archive = corpus.train[0].source
    assert missing(corpus.files) == [
        (archive.location, len(ARCHIVE)), (URL, None), ("sacrebleu:wmt13/en-de", None),
    ]  # fmt: skip
    fill_sacrebleu(tmp_path)
    with ScriptedServer(ARCHIVE).running() as server:
        monkeypatch.setenv("DATA_MIRROR", server.url)
        server.script = [cut(17), status(404)]
        with pytest.raises(InputError, match="HTTP 404"):
            fetch(archive)
        assert missing(corpus.files) == [(archive.location, len(ARCHIVE) - 17), (URL, None)]
        fetch(archive)
    assert missing(corpus.files) == [(URL, None)]


def test_an_unpacked_archive_may_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    file = corpus_of_archive().train[0].source
    with ScriptedServer(ARCHIVE).running() as server:
        monkeypatch.setenv("DATA_MIRROR", server.url)
        path = fetch(file)
    for archive in cache_directory().rglob("*.tgz*"):
        archive.unlink()
    assert fetch(file) == path
    assert path.read_bytes() == CONTENT


def test_errors_in_user_files_come_before_any_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = TextFile(location=str(tmp_path / "none"))
    corpus = dataclasses.replace(
        corpus_of_archive(), valid=ParallelText(source=own, target=own), test=None
    )
    with ScriptedServer(ARCHIVE).running() as server:
        monkeypatch.setenv("DATA_MIRROR", server.url)
        with pytest.raises(InputError, match="none does not exist"):
            fetch_all(corpus.splits)
        assert server.paths == []


def test_a_member_of_a_downloaded_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = packed(CONTENT)
    sha256 = hashlib.sha256(archive).hexdigest()
    url = "https://data.example.org/corpus.tgz"
    with ScriptedServer(archive).running() as server:
        server.script = [cut(len(archive) // 2)]
        monkeypatch.setenv("DATA_MIRROR", server.url)
        path = fetch(TextFile(location=url, sha256=sha256, member="training/train.en"))
        assert path.read_bytes() == CONTENT
        assert fetch(TextFile(location=url, sha256=sha256, member="training/train.en")) == path
        assert len(server.paths) == 2


def test_a_member_of_a_user_archive(tmp_path: Path) -> None:
    archive = tmp_path / "mine.tar.gz"
    archive.write_bytes(packed(CONTENT))
    path = fetch(TextFile(location=str(archive), member="training/train.en"))
    assert path.read_bytes() == CONTENT
    archive.write_bytes(packed(b"other\n"))
    path = fetch(TextFile(location=str(archive), member="training/train.en"))
    assert path.read_bytes() == b"other\n"


def test_builtin_text_is_generated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cldr, "PAIRS", 53)
    monkeypatch.setattr(cldr, "HELD_OUT", 11)
    paths = [
        fetch(TextFile(location=f"builtin:cldr_en_de/{name}"))
        for name in ("train.en", "train.de", "valid.en", "train.en")
    ]
    assert [len(path.read_text().splitlines()) for path in paths] == [31, 31, 11, 31]
    assert paths[0] == paths[3]
    assert not list(cache_directory().rglob("*.part"))


def test_a_checksum_is_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    # FIPS 180-2, appendix B.1
    assert sha256_of(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_the_cache_directory_can_be_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("DATA_CACHE", "~/data")
    assert cache_directory() == Path("/home/ada/data")
    monkeypatch.delenv("DATA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/ada")
    assert cache_directory() == Path("/var/ada/attention-is-all-you-need")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path("/home/ada/.cache/attention-is-all-you-need")
