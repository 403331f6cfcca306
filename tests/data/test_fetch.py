"""Texts from failing servers, mirrors, archives, sacreBLEU and the user; nothing half-written."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import random
import re
import shutil
import socket
import tarfile
import threading
import time
import traceback
import tracemalloc
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.data.scripted_server import (
    Behaviour,
    ScriptedServer,
    cut,
    endless,
    ignoring_ranges,
    other,
    stalled,
    status,
    whole,
)
from tests.samples import archive, flip_a_bit
from transformer.config import from_dict, to_dict
from transformer.corpus import TextFile
from transformer.data.fetch import download as download_module
from transformer.data.fetch import texts
from transformer.data.fetch.cache import cache_directory, exclusive, write_once
from transformer.data.fetch.download import download
from transformer.data.fetch.texts import fetch
from transformer.errors import InputError
from transformer.files import part_of

CONTENT = b"one\ntwo\n" * 4_001
SHA256 = hashlib.sha256(CONTENT).hexdigest()
URL = "https://data.example.org/corpus/train.en.gz"
FILE = TextFile(location=URL, sha256=SHA256)


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(download_module, "_BACKOFF", 0)
    monkeypatch.setattr(download_module, "_TIMEOUT", (1, 0.3))
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "sacrebleu"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    with ScriptedServer(CONTENT).running() as running:
        monkeypatch.setenv("DATA_MIRROR", running.url)
        yield running


def kept(folder: Path | None = None) -> list[str]:
    """All files but locks, by default those in our cache."""
    folder = folder or cache_directory()
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sorted(str(path.relative_to(folder)) for path in found)


def refused(file: TextFile, message: str) -> None:
    """A refusal in one line that leaves nothing in the cache."""
    with pytest.raises(InputError, match=message) as error:
        fetch(file)
    assert "\n" not in str(error.value)
    assert kept() == []


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for name, value, expected in (
        ("DATA_CACHE", "~/big", "/home/me/big"),
        ("XDG_CACHE_HOME", "/x", "/x/attention-is-all-you-need"),
        ("OTHER", "", "/home/me/.cache/attention-is-all-you-need"),
    ):
        for variable in ("DATA_CACHE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv(name, value)
        assert cache_directory() == Path(expected)


def test_a_second_process_waits_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    path, order = cache_directory() / "a" / "x.tgz", list[str]()

    def wait() -> None:
        with exclusive(path, "fetches x.tgz"):
            order.append("second")

    waiting = threading.Thread(target=wait)
    with exclusive(path, "fetches x.tgz"):
        assert capsys.readouterr().err == ""
        waiting.start()
        while not (said := capsys.readouterr().err):
            waiting.join(0.01)
        order.append("first")
    waiting.join()
    assert said == "waiting for another process that fetches x.tgz\n"
    assert order == ["first", "second"]


def test_an_unwritable_cache_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DATA_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=rf"{tmp_path}/file.* cannot be written \(.*DATA_CACHE"):
        fetch(FILE)


def test_in_a_cache_of_others_what_is_there_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.lock").mkdir()  # which cannot be locked
    with pytest.raises(InputError, match=r"x\.lock is a folder, and not a file"):
        write_once(tmp_path / "x", Path.mkdir)
    (tmp_path / "x").mkdir()
    assert write_once(tmp_path / "x", lambda _: pytest.fail("wrote it")).is_dir()


def test_what_is_not_whole_is_not_there(tmp_path: Path) -> None:
    def write(part: Path) -> None:
        part.mkdir()
        (part / "a").write_text("a")
        if fails:
            raise KeyError

    for fails in (True, False):
        (tmp_path / ".folder.part" / "left").mkdir(parents=True)  # by a kill
        if fails:
            with pytest.raises(KeyError):
                write_once(tmp_path / "folder", write)
            assert {path.suffix for path in tmp_path.iterdir()} <= {".lock"}
    assert write_once(tmp_path / "folder", write) == tmp_path / "folder"
    assert write_once(tmp_path / "folder", lambda _: pytest.fail("wrote it again")).is_dir()
    assert kept(tmp_path) == ["folder/a"]


@pytest.mark.parametrize(
    ("begun", "script", "ranges"),
    [
        (b"", [], [None]),
        (b"", [cut(1_000), cut(7_000), stalled(5)], [None, 1_000, 8_000, 8_005]),
        (b"", [cut(10), *[status(503)] * 4], [None, *[10] * 5]),
        (b"", [cut(1_000), ignoring_ranges], [None, 1_000]),
        (CONTENT[:4_321], [], [4_321]),
        (CONTENT, [], [len(CONTENT)]),  # the server answers that there is no more
        (b"x" * 777, [], [777, None]),  # the rest of another file
        (b"", [other(b"wrong")], [None, None]),
    ],
)
def test_a_file_is_fetched_whole_from_where_it_broke_off(
    begun: bytes,
    script: list[Behaviour],
    ranges: list[int | None],
    server: ScriptedServer,
    tmp_path: Path,
) -> None:
    if begun:
        (tmp_path / ".file.part").write_bytes(begun)
    server.script = script
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == [None if start is None else f"bytes={start}-" for start in ranges]
    assert kept(tmp_path) == ["file"]


def test_how_much_has_arrived_is_shown(
    server: ScriptedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of the whole file, whatever an earlier try has brought."""
    monkeypatch.setattr(download_module, "_LARGE", 0)
    monkeypatch.setattr("transformer.progress._LINE_SECONDS", 0)
    server.script = [cut(len(CONTENT) // 4), cut(len(CONTENT) // 2)]
    download(server.url, tmp_path / "file", SHA256)
    shown = [int(x) for x in re.findall(r"fetch file: (\d+)%", capsys.readouterr().err)]
    assert {25, 75} < set(shown) and shown == sorted(shown) and shown[-1] == 100


def test_wrong_content_twice_is_reported_and_removed(server: ScriptedServer) -> None:
    server.script = [other(b"wrong")] * 2
    found = hashlib.sha256(b"wrong").hexdigest()
    refused(FILE, rf"expected sha256 {SHA256}, found {found} \(5 bytes\); set DATA_MIRROR")


@pytest.mark.parametrize(
    ("behaviour", "reason", "requests"),
    [
        (status(503), "cannot be downloaded (HTTP 503); set DATA_MIRROR", 5),
        (status(404), "cannot be downloaded (HTTP 404); set DATA_MIRROR", 1),
        (cut(0), "cannot be downloaded (ProtocolError); set DATA_MIRROR", 5),
        (other(b"<html>"), "expected 32008 bytes, found 6 (application/gzip); set DATA_MIR", 1),
    ],
    ids=["busy", "absent", "cut off", "another size"],
)
def test_what_was_received_is_kept_when_a_server_is_given_up(
    behaviour: Behaviour, reason: str, requests: int, server: ScriptedServer, tmp_path: Path
) -> None:
    server.script = [cut(10), *[behaviour] * requests]
    with pytest.raises(InputError, match=re.escape(reason)):
        download(server.url, tmp_path / "file", SHA256, len(CONTENT))
    assert (tmp_path / ".file.part").read_bytes() == CONTENT[:10]
    assert len(server.paths) == 1 + requests
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("size", [len(CONTENT), None])
@pytest.mark.parametrize("begun", [0, 100])
def test_a_download_without_an_end_stops_and_leaves_nothing(
    begun: int, size: int | None, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_module, "_MOST_BYTES", len(CONTENT))
    file = replace(FILE, bytes=size)
    path = download_module.cached_path(file)
    path.parent.mkdir(parents=True)
    part_of(path).write_bytes(CONTENT[:begun])
    server.script = [endless]
    refused(file, "is not the declared file: it has more than 32,008 bytes")
    assert len(server.paths) == 1


def test_a_download_of_unknown_size_does_not_keep_the_disk_full(
    server: ScriptedServer, tmp_path: Path
) -> None:
    part = tmp_path / ".file.part"
    part.symlink_to("/dev/full")
    server.script = [endless]
    with pytest.raises(OSError, match="No space left"):
        download(server.url, tmp_path / "file", SHA256)
    assert not part.is_symlink()


def test_a_server_that_starts_over_is_given_up(server: ScriptedServer, tmp_path: Path) -> None:
    def broken(size: int) -> Behaviour:
        return lambda handler, content: ignoring_ranges(handler, content, size)

    server.script = [broken(size) for size in (7, 5) * 10]
    with pytest.raises(InputError, match=r"cannot be downloaded \(ProtocolError\)"):
        download(server.url, tmp_path / "file", SHA256)
    assert len(server.paths) == 6


@pytest.mark.usefixtures("server")
def test_a_disk_without_room_is_noticed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000))
    said = "needs 0.0 MB in .*, where 0.0 MB are free: make room"
    refused(FILE, rf"^train\.en\.gz {said}")
    (tmp_path / "a.tgz").write_bytes(archive({"x.en": CONTENT}))
    refused(TextFile(location=str(tmp_path / "a.tgz"), member="x.en"), rf"^x\.en {said}")
    origin = tmp_path / URL.removeprefix("https://")
    origin.parent.mkdir(parents=True)
    origin.write_bytes(CONTENT)
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path))
    refused(FILE, rf"^train\.en\.gz {said}")


@pytest.mark.parametrize("wanted", ["x.en", "y.en"])
def test_an_archive_that_grows_beyond_all_text_is_refused(wanted: str, tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(archive({"x.en": bytes(10_000_000), "y.en": CONTENT}))
    file = TextFile(location=str(tmp_path / "a.tgz"), member=wanted)
    refused(file, r"a\.tgz grows to more than 100 times its size by its member x\.en: that is not")


def test_a_mirror_may_be_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_MIRROR", str(tmp_path))
    origin = tmp_path / URL.removeprefix("https://")
    refused(FILE, f"{origin} does not exist: DATA_MIRROR lacks {URL}")
    origin.parent.mkdir(parents=True)
    altered = CONTENT.replace(b"two", b"too", 1)
    origin.write_bytes(altered)
    found = hashlib.sha256(altered).hexdigest()
    refused(FILE, rf"{origin} is .*: expected sha256 {SHA256}, found {found} \(32008 bytes\)")
    origin.write_bytes(CONTENT)
    path = fetch(FILE)
    assert path.read_bytes() == origin.read_bytes() == CONTENT
    assert path.name == "train.en.gz", "its ending says how to unpack it"


@pytest.mark.parametrize("end", ["", "/"])
def test_from_a_mirror_only_an_altered_download_is_fetched_again(
    end: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_MIRROR", f"{server.url}{end}")
    server.script = [status(404)]
    refused(FILE, rf"{server.url}/data.* \(HTTP 404\)")
    for path in (fetch(FILE), fetch(FILE)):
        assert path.read_bytes() == CONTENT
    assert server.paths == ["/data.example.org/corpus/train.en.gz"] * 2
    path.write_bytes(CONTENT[:-1] + b"\r")
    assert fetch(FILE).read_bytes() == CONTENT


SECRET = "S3CR3T"


def needs_secrets(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    """The content, for those who know a password and a token."""
    is_known = handler.headers["Authorization"] == f"Basic {b64encode(b'me:S3CR3T').decode()}"
    (whole if is_known and SECRET in handler.path else status(401))(handler, content)


def test_secrets_of_an_address_are_for_the_download_alone(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DATA_MIRROR")
    server.script = [needs_secrets] * 4
    address = server.url.replace("://", f"://me:{SECRET}@")
    one, other = (
        TextFile(location=f"{address}/get?token={SECRET}&name={name}.gz", sha256=sha256)
        for name, sha256 in (("a", SHA256), ("b", "0" * 64))
    )
    read = from_dict(TextFile, to_dict(one))  # as by a run of a table
    assert read == one and SECRET not in f"{one} {one.name} {to_dict(one)}"
    assert one.location == f"{server.url}/get?….gz"
    path = fetch(read)
    assert path.read_bytes() == CONTENT and path.suffix == ".gz"
    assert not [name for name in kept() if SECRET in name or "me" in name]
    assert server.paths == [f"/get?token={SECRET}&name=a.gz"]
    with pytest.raises(InputError, match=r"get\?….gz is not the declared file: .*0000, found"):
        fetch(other)
    assert fetch(one) == path, "files of two queries have places of their own"
    path.unlink()
    for variable in [name for name in os.environ if name.startswith("DATA_ADDRESS_")]:
        monkeypatch.delenv(variable)
    refused(one, r"/get cannot be downloaded \(HTTP 401; passwords and queries are not stored")
    assert SECRET not in "".join(capsys.readouterr())


def test_secrets_of_an_address_do_not_reach_the_mirror(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TextFile(location=f"https://me:{SECRET}@a.org/b.gz?{SECRET}", sha256=SHA256)
    assert fetch(file).read_bytes() == CONTENT
    assert server.paths == ["/a.org/b.gz"]
    for mirror in (server.url.replace("://", f"://me:{SECRET}@"), f"http://me:{SECRET}/ x@a.org"):
        monkeypatch.setenv("DATA_MIRROR", mirror)
        server.script = [status(404)]
        with pytest.raises(InputError, match=r"HTTP 404|DATA_MIRROR cannot be read") as error:
            fetch(replace(file, sha256="0" * 64))
        assert SECRET not in str(error.value)


@pytest.mark.parametrize("proxy", [f"http://me:{SECRET}@127.0.0.1:1", f"socks9://me:{SECRET}@x"])
def test_a_password_of_a_proxy_is_not_shown(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATA_MIRROR", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(InputError, match=r"train\.en\.gz cannot be downloaded \(") as error:
        fetch(FILE)
    assert SECRET not in "".join(traceback.format_exception(error.value))


def test_without_a_network_address_and_mirror_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATA_MIRROR", raising=False)
    with socket.socket() as free:  # bound, but not listening
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/train.en.gz"
        message = rf"{re.escape(url)} cannot be downloaded \(ConnectionError\); set DATA_MIRROR"
        refused(TextFile(location=url, sha256=SHA256), message)


def test_a_user_file_is_used_in_place_and_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "train.en"
    plain = TextFile(location=str(path))
    declared = TextFile(location=str(path), sha256=SHA256)
    refused(plain, f"{path} does not exist")
    path.write_bytes(b"another\n")
    refused(declared, f"{path} is not the declared file: exp")
    assert fetch(plain) == path
    path.write_bytes(CONTENT)
    assert fetch(declared) == path
    assert kept() == []


def test_a_built_in_text_is_unpacked_once_from_an_archive_whose_checksum_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TextFile(location="builtin:cldr_en_de/valid.en")
    path = fetch(text)
    assert len(path.read_text("utf-8").splitlines()) == 1_000
    for name, said in (
        ("cldr_en_de/dev.en", "has no file dev.en"),
        ("cldr_en_fr/train.en", "builtin:cldr_en_fr/train.en does not exist"),
    ):
        with pytest.raises(InputError, match=said):
            fetch(TextFile(location=f"builtin:{name}"))
    folder = shutil.copytree(texts._CORPORA / "cldr_en_de", tmp_path / "cldr_en_de")
    flip_a_bit(folder / "texts.tar.xz")
    monkeypatch.setattr(texts, "_CORPORA", tmp_path)
    assert fetch(text) == path
    path.unlink()
    with pytest.raises(InputError, match=r"texts\.tar\.xz is not the declared file: expected"):
        fetch(text)


MODES = {"tgz": "w:gz", "tar": "w", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}


@pytest.mark.parametrize("ending", MODES)
@pytest.mark.parametrize("prefix", ["", "./"])
def test_only_the_requested_member_is_unpacked_and_the_archive_needed_no_more(
    tmp_path: Path, ending: str, prefix: str, server: ScriptedServer
) -> None:
    members = {
        "training": b"", f"{prefix}training/x.de": b"eins\n", "y": b"acht\n",
        f"{prefix}training/x.en": CONTENT, "/etc/evil": b"evil", "../evil": b"evil",
    }  # fmt: skip
    packed = server.content = archive(members, MODES[ending])
    address, sha256 = f"https://data.example.org/a.{ending}", hashlib.sha256(packed).hexdigest()
    file = TextFile(location=address, sha256=sha256, member="training/x.en")
    path = fetch(file)
    assert path.read_bytes() == CONTENT
    with pytest.raises(InputError, match=f"^training of {address} is a folder: name a file in it"):
        fetch(replace(file, member="training"))
    assert kept() == [
        f"downloads/data.example.org/a.{ending}",
        str(path.relative_to(cache_directory())),
    ]
    (cache_directory() / "downloads" / "data.example.org" / f"a.{ending}").unlink()
    assert fetch(file) == path and len(server.paths) == 1
    own = tmp_path / "mine.tgz"
    for content in (CONTENT, b"other\n"):  # the user's own is unpacked again if it changed
        own.write_bytes(archive({"x.en": content}))
        assert fetch(TextFile(location=str(own), member="./x.en")).read_bytes() == content


def test_a_cache_on_a_disk_without_locks_is_read_but_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", refuse)
    (tmp_path / "a.lock").touch()  # of another machine, where there are locks
    with pytest.raises(InputError, match=r"a\.lock cannot be locked .*, on another disk"):
        write_once(tmp_path / "a", Path.touch)
    (tmp_path / "a").touch()
    assert write_once(tmp_path / "a", Path.unlink).exists()


def test_what_another_process_has_unpacked_meanwhile_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(archive({"x.en": CONTENT}))
    file = TextFile(location=str(tmp_path / "a.tgz"), member="x.en")
    path = fetch(file)
    path.unlink()
    with ThreadPoolExecutor(1) as thread:
        with exclusive(path, "unpacks"):
            found = thread.submit(fetch, file)
            time.sleep(0.1)
            assert not found.done()  # it waits for the lock
            path.write_bytes(b"theirs")
        assert found.result().read_bytes() == b"theirs"


def header(kind: bytes, size: int) -> bytes:
    """One block of a tar that says that ``size`` bytes of this kind follow."""
    info = tarfile.TarInfo("x.en")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def sparse_header() -> bytes:
    """One that says that more blocks with the places of its data follow."""
    block = bytearray(header(tarfile.GNUTYPE_SPARSE, 0))
    block[482] = 1
    block[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(block))[0]  # pyright: ignore
    return bytes(block)


# What begins each archive, and the block of 512 bytes that goes on without an end.
ENDLESS_HEADERS = {
    "long name": (header(tarfile.GNUTYPE_LONGNAME, 10**10), b"x" * 512),
    "pax": (header(tarfile.XHDTYPE, 10**10), b"x" * 512),
    "global": (header(tarfile.XGLTYPE, 10**10), b"x" * 512),
    "sparse": (sparse_header(), b"\1" * 512),
    "empty names": (b"", header(tarfile.GNUTYPE_LONGNAME, 0)),
}


@pytest.mark.parametrize("name", ENDLESS_HEADERS)
def test_headers_of_an_archive_take_bounded_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "_MOST_HEADERS", 2**18)
    begin, block = ENDLESS_HEADERS[name]
    (tmp_path / "a.tgz").write_bytes(gzip.compress(begin + block * 40_000, 1))
    tracemalloc.start()
    refused(TextFile(location=str(tmp_path / "a.tgz"), member="x.en"), r"a\.tgz cannot be read")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_000_000


def test_the_files_of_an_archive_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tarfile.TarFile] = []

    def opening(**settings: Any) -> tarfile.TarFile:
        opened.append(open_tar(**settings))
        return opened[0]

    files = {f"{number}.en": b"" for number in range(11)} | {"x.en": CONTENT}
    (tmp_path / "a.tgz").write_bytes(archive(files))
    open_tar = tarfile.open
    monkeypatch.setattr(tarfile, "open", opening)
    file = TextFile(location=str(tmp_path / "a.tgz"), member="x.en")
    assert fetch(file).read_bytes() == CONTENT
    assert cast(Any, opened[0]).members == []


NOISE = {"x.en": random.Random(1).randbytes(9_001)}
UNUSABLE = {
    **{f"cut.{end}": (archive(NOISE, MODES[end])[:600], "cannot be read") for end in MODES},
    "other.tgz": (archive({"x.de": b"eins\n"}), r"has no file x\.en: it is another"),
    "link.tgz": (archive({"x.en": b""}, kind=tarfile.SYMTYPE), "has no file x"),
    "pipe.tgz": (archive({"x.en": b""}, kind=tarfile.FIFOTYPE), "has no file x"),
    "map.tgz": (
        archive({"y": b"", "x.en": b"one\n"}, pax={"GNU.sparse.map": "a,b"}),
        "cannot be read: inv",
    ),
    "page.tgz": (b"<html>no</html>" * 99, "cannot be read.*; is it a whole tar"),
    "empty.tgz": (b"", "(cannot be read|has no file)"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_archive_is_named_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    content, problem = UNUSABLE[name]
    (tmp_path / name).write_bytes(content)
    refused(TextFile(location=str(tmp_path / name), member="x.en"), f"{name} {problem}")


def side_of(name: str, side: str = "source") -> TextFile:
    return TextFile(location=f"sacrebleu:{name}/en-de/{side}")


def fill(folder: Path, source: str, reference: str) -> None:
    """Write ``wmt14/full`` as sacreBLEU does."""
    (folder / "wmt14" / "full").mkdir(parents=True, exist_ok=True)
    for field, text in (("src", source), ("ref", reference)):
        path = folder / "wmt14" / "full" / f"wmt14_full.en-de.{field}"
        path.write_text(text, encoding="utf-8")


def test_entities_of_a_test_set_are_unescaped(tmp_path: Path) -> None:
    folder = tmp_path / "sacrebleu"
    fill(folder, "R&amp;D\u2028&lt;two&gt;\n&quot;three&#39;s &copy\n", "F&amp;E\n&quot;drei\n")
    for side, lines in (
        ("source", ["R&D <two>", "\"three's &copy"]),
        ("reference", ["F&E", '"drei']),
    ):
        assert fetch(side_of("wmt14/full", side)).read_text().splitlines() == lines
    fill(folder, "another\n", "F&amp;E\n")
    assert fetch(side_of("wmt14/full")).read_text() == "another\n"
    assert len(kept()) == 3


def sgm(lines: list[str]) -> bytes:
    segments = "".join(f'<seg id="{n}">{line}</seg>\n' for n, line in enumerate(lines))
    return f'<doc docid="a" genre="news" origlang="en">\n{segments}</doc>\n'.encode()


def test_a_wrong_test_set_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = {"en": ["R&amp;D", "two"], "de": ["F&amp;E", "zwei"]}
    served = archive({f"test/newstest2013-src.{x}.sgm": sgm(lines) for x, lines in sides.items()})
    with ScriptedServer(served).running() as server:
        server.script = [other(b"<html>Log in</html>")]
        md5 = hashlib.md5(served).hexdigest()
        address = (
            "from sacrebleu.dataset import DATASETS; wmt13 = DATASETS['wmt13']; "
            f"wmt13.data, wmt13.md5 = ['{server.url}/test.tgz'], ['{md5}']; "
        )
        monkeypatch.setattr(texts, "_FETCH", address + texts._FETCH)
        refused(side_of("wmt13"), r"cannot fetch wmt13 for en-de.*MD5 sum.*incorrect")
        for _ in range(2):
            assert fetch(side_of("wmt13")).read_text() == "R&D\ntwo\n"
        assert fetch(side_of("wmt13", "reference")).read_text() == "F&E\nzwei\n"
        assert len(server.paths) == 2
    assert not (tmp_path / "sacrebleu").exists()


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("wmt13/en-de", "sacrebleu:wmt13/en-de is not a side of a test set: write"),
        ("wmt13/en-de/target", "is not a side of a test set"),
        ("vaild/en-de/source", "^unknown split 'vaild': did you mean 'valid'"),
        ("wmt13/en-de/source", r"fetch wmt13 for en-de \(no answer in 0\.1 s\); set SACREBLEU to a "
         r"folder that holds wmt13/wmt13\.en-de\.src and \.ref$"),
    ],
)  # fmt: skip
def test_a_test_set_that_cannot_be_had_is_refused_in_one_line(
    rest: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "_FETCH", "import time; time.sleep(60)")
    monkeypatch.setattr(texts, "_TIMEOUT_SECONDS", 0.1)
    refused(TextFile(location=f"sacrebleu:{rest}"), problem)
