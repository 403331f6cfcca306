"""Texts from mirrors, archives, generators and the user; failures leave nothing behind."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import re
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.scripted_server import ScriptedServer, cut, status
from tests.samples import archive
from transformer.corpus import Corpus, ParallelText, TextFile
from transformer.data.corpora import cldr
from transformer.data.corpora.declared import sacrebleu_set
from transformer.data.fetch import download
from transformer.data.fetch.cache import cache_directory
from transformer.data.fetch.texts import fetch, fetch_all, missing, unpack_members
from transformer.errors import InputError

CONTENT = b"one\ntwo\n" * 401
URL = "https://data.example.org/corpus/train.en.gz"
FILE = TextFile(location=URL, sha256=hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_BACKOFF", 0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with ScriptedServer(CONTENT).running() as running:
        monkeypatch.setenv("DATA_MIRROR", running.url)
        yield running


def files_of(folder: Path) -> list[str]:
    """All files except locks."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sorted(str(path.relative_to(folder)) for path in found)


def refused(file: TextFile, message: str) -> None:
    """A refusal in one line that leaves nothing in the cache."""
    with pytest.raises(InputError, match=message) as error:
        fetch(file)
    assert "\n" not in str(error.value)
    assert files_of(cache_directory()) == []


def test_a_mirror_may_be_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path))
    origin = tmp_path / URL.removeprefix("https://")
    refused(FILE, f"{origin} does not exist: DATA_MIRROR lacks {URL}")
    origin.parent.mkdir(parents=True)
    altered = CONTENT.replace(b"two", b"too", 1)
    origin.write_bytes(altered)
    found = hashlib.sha256(altered).hexdigest()
    refused(FILE, rf"{origin} is .*: expected sha256 {FILE.sha256}, found {found} \(3208 bytes\)")
    origin.write_bytes(CONTENT)
    path = fetch(FILE)
    assert path.read_bytes() == origin.read_bytes() == CONTENT
    assert path.name == "train.en.gz", "its ending says how to unpack it"
    assert cache_directory() in path.parents


@pytest.mark.parametrize("end", ["", "/"])
def test_a_mirror_may_be_a_url(
    end: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_MIRROR", f"{server.url}{end}")
    server.script = [status(404)]
    refused(FILE, rf"{server.url}/data.* \(HTTP 404\)")
    assert fetch(FILE).read_bytes() == CONTENT
    assert server.paths == ["/data.example.org/corpus/train.en.gz"] * 2


def test_without_a_network_the_message_names_the_address_and_the_mirror(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DATA_MIRROR", raising=False)
    with socket.socket() as free:  # bound, but not listening
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/train.en.gz"
        refused(
            TextFile(location=url, sha256=FILE.sha256),
            rf"{re.escape(url)} cannot be downloaded \(ConnectionError\); set DATA_MIRROR",
        )


def test_only_an_altered_download_is_fetched_again(server: ScriptedServer) -> None:
    for path in (fetch(FILE), fetch(FILE)):
        assert path.read_bytes() == CONTENT
    assert len(server.paths) == 1
    path.write_bytes(CONTENT[:-1] + b"\r")
    assert fetch(FILE).read_bytes() == CONTENT


def test_a_user_file_is_used_in_place_and_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "train.en"
    refused(TextFile(location=str(path)), f"{path} does not exist")
    path.write_bytes(b"another\n")
    refused(
        TextFile(location=str(path), sha256=FILE.sha256), f"{path} is not the declared file: exp"
    )
    assert fetch(TextFile(location=str(path))) == path
    path.write_bytes(CONTENT)
    assert fetch(TextFile(location=str(path), sha256=FILE.sha256)) == path
    assert files_of(cache_directory()) == []


def test_builtin_text_is_generated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cldr, "PAIRS", 53)
    monkeypatch.setattr(cldr, "HELD_OUT", 11)
    paths = [
        fetch(TextFile(location=f"builtin:cldr_en_de/{name}"))
        for name in ("train.en", "train.de", "valid.en", "train.en")
    ]
    assert [len(path.read_text().splitlines()) for path in paths] == [31, 31, 11, 31]
    assert paths[0] == paths[3]


MODES = {"tgz": "w:gz", "tar": "w", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}


@pytest.mark.parametrize("ending", MODES)
@pytest.mark.parametrize("prefix", ["", "./"])
def test_only_the_requested_members_are_unpacked_in_one_pass(
    tmp_path: Path, ending: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {
        "training": b"", f"{prefix}training/x.de": b"eins\n", "y": b"acht\n",
        f"{prefix}training/x.en": CONTENT, "/etc/evil": b"evil", "../evil": b"evil",
    }  # fmt: skip
    path = tmp_path / f"a.{ending}"
    path.write_bytes(archive(content, MODES[ending]))
    opened: list[str] = []
    real = tarfile.open
    monkeypatch.setattr(tarfile, "open", lambda **given: opened.append("once") or real(**given))
    names = ["training/x.en", "training/x.de"]
    paths = unpack_members(path, names, tmp_path / "out")
    assert [paths[name].read_bytes() for name in names] == [CONTENT, b"eins\n"]
    assert files_of(tmp_path / "out") == sorted(names)
    assert unpack_members(path, names, tmp_path / "out") == paths
    assert opened == ["once"]


NOISE = {"x.en": random.Random(1).randbytes(9_001)}
UNUSABLE = {
    **{f"cut.{end}": (archive(NOISE, MODES[end])[:600], "cannot be read") for end in MODES},
    "other.tgz": (archive({"x.de": b"eins\n"}), r"has no file x\.en: it is another"),
    "link.tgz": (archive({"x.en": b""}, kind=tarfile.SYMTYPE), "has no file x"),
    "pipe.tgz": (archive({"x.en": b""}, kind=tarfile.FIFOTYPE), "has no file x"),
    "page.tgz": (b"<html>no</html>" * 99, "cannot be read"),
    "empty.tgz": (b"", "(cannot be read|has no file)"),
}


@pytest.mark.parametrize("name", ["../x.en", "/x.en", "a/../../x.en"])
def test_a_member_name_outside_the_archive_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.tgz").write_bytes(archive({name: CONTENT}))
    with pytest.raises(InputError, match="points outside"):
        unpack_members(tmp_path / "a.tgz", [name], tmp_path / "out")
    assert files_of(tmp_path) == ["a.tgz"]


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_archive_is_named_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    content, problem = UNUSABLE[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} {problem}") as error:
        unpack_members(tmp_path / name, ["x.en"], tmp_path / "out")
    assert "\n" not in str(error.value)
    assert files_of(tmp_path / "out") == []


ARCHIVE = archive(dict.fromkeys(("x.en", "x.de", "y.en", "y.de"), CONTENT))


def corpus_of_archive() -> Corpus:
    """Two texts of an archive, a download, and a test set of sacreBLEU."""

    def side(name: str) -> TextFile:
        sha256 = hashlib.sha256(ARCHIVE).hexdigest()
        address = "https://data.example.org/corpus.tgz"
        return TextFile(location=address, sha256=sha256, bytes=len(ARCHIVE), member=name)

    return Corpus(
        name="small",
        source_language="en",
        target_language="de",
        licence="",
        train=tuple(ParallelText(source=side(f"{x}.en"), target=side(f"{x}.de")) for x in "xy"),
        valid=ParallelText(source=FILE, target=FILE),
        test=sacrebleu_set("wmt13", "en-de"),
    )


def fill_sacrebleu(folder: Path) -> None:
    (folder / "wmt13").mkdir()
    for field, line in (("src", "one\n"), ("ref", "eins\n")):
        (folder / "wmt13" / f"wmt13.en-de.{field}").write_text(line)


def test_everything_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_sacrebleu(tmp_path)
    monkeypatch.setenv("SACREBLEU", str(tmp_path))
    corpus = corpus_of_archive()
    with ScriptedServer(
        {"/data.example.org/corpus.tgz": ARCHIVE, f"/{URL[8:]}": CONTENT}
    ).running() as server:
        monkeypatch.setenv("DATA_MIRROR", server.url)
        paths = fetch_all(corpus.files)
        assert len(server.paths) == 2
    for path in cache_directory().rglob("*.tgz*"):
        path.unlink()  # is not needed once it is unpacked
    assert fetch_all(corpus.files) == paths
    assert [paths[file].name for file in corpus.files[:4]] == ["x.en", "x.de", "y.en", "y.de"]
    assert [paths[file].read_text() for file in corpus.files[-2:]] == ["one\n", "eins\n"]


def test_the_missing_is_known_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU", str(tmp_path))
    corpus = corpus_of_archive()
    whole = corpus.train[0].source
    size, address = len(ARCHIVE), whole.location
    assert missing(corpus.files) == {address: size, URL: None, "sacrebleu:wmt13/en-de": None}
    fill_sacrebleu(tmp_path)
    with ScriptedServer(ARCHIVE).running() as server:
        monkeypatch.setenv("DATA_MIRROR", server.url)
        server.script = [cut(17), status(404)]
        with pytest.raises(InputError, match="HTTP 404"):
            fetch(whole)
        assert missing(corpus.files) == {address: size - 17, URL: None}
        fetch(whole)
    assert missing(corpus.files) == {URL: None}


def test_errors_in_user_files_come_before_any_download(
    tmp_path: Path, server: ScriptedServer
) -> None:
    own = TextFile(location=str(tmp_path / "none"))
    corpus = dataclasses.replace(
        corpus_of_archive(), valid=ParallelText(source=own, target=own), test=None
    )
    with pytest.raises(InputError, match="none does not exist"):
        fetch_all(corpus.files)
    assert server.paths == []


def test_a_changed_archive_of_the_user_is_unpacked_again(tmp_path: Path) -> None:
    for content in (CONTENT, b"other\n"):
        (tmp_path / "mine.tgz").write_bytes(archive({"train.en": content}))
        path = fetch(TextFile(location=str(tmp_path / "mine.tgz"), member="train.en"))
        assert path.read_bytes() == content
