"""Downloads from failing servers: partial files are kept and the result is verified."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.data.scripted_server import (
    Behaviour,
    ScriptedServer,
    cut,
    ignoring_ranges,
    other,
    stalled,
    status,
)
from transformer.data.fetch import download as download_module
from transformer.data.fetch.download import download
from transformer.errors import InputError

CONTENT = bytes(range(256)) * 997
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PAGE = other(b"<html>Log in to the network</html>", "text/html; charset=utf-8")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(CONTENT).running() as running:
        yield running


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module, "_BACKOFF", 0)
    monkeypatch.setattr(download_module, "_TIMEOUT", (1, 0.3))


@pytest.mark.parametrize(
    ("begun", "script", "ranges"),
    [
        (b"", [], [None]),
        (b"", [cut(1_000), cut(70_000), stalled(5)], [None, 1_000, 71_000, 71_005]),
        (b"", [cut(10), *[status(503)] * 5], [None, *[10] * 6]),
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
        (tmp_path / "file.part").write_bytes(begun)
    server.script = script
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == [None if start is None else f"bytes={start}-" for start in ranges]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_wrong_content_twice_is_reported_and_removed(
    server: ScriptedServer, tmp_path: Path
) -> None:
    server.script = [other(b"wrong")] * 2
    found = hashlib.sha256(b"wrong").hexdigest()
    with pytest.raises(InputError, match=f"expected sha256 {SHA256}, found {found}") as error:
        download(server.url, tmp_path / "file", SHA256)
    assert "(5 bytes); set DATA_MIRROR" in str(error.value)
    assert "\n" not in str(error.value) and server.url in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("behaviour", "reason", "requests"),
    [
        (status(503), "cannot be downloaded (HTTP 503); set DATA_MIRROR", 6),
        (status(404), "cannot be downloaded (HTTP 404); set DATA_MIRROR", 1),
        (cut(0), "cannot be downloaded (it broke off after 10 bytes, which are kept: try", 6),
        (PAGE, f"expected {len(CONTENT)} bytes, found 34 (text/html; charset=utf-8); set DATA", 1),
    ],
)
def test_what_was_received_is_kept_when_a_server_is_given_up(
    behaviour: Behaviour, reason: str, requests: int, server: ScriptedServer, tmp_path: Path
) -> None:
    server.script = [cut(10), *[behaviour] * requests]
    with pytest.raises(InputError) as error:
        download(server.url, tmp_path / "file", SHA256, len(CONTENT))
    assert reason in str(error.value) and "\n" not in str(error.value)
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:10]
    assert len(server.paths) == 1 + requests
    download(server.url, tmp_path / "file", SHA256, len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_complete_partial_file_of_known_size_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download("http://127.0.0.1:1/nobody", tmp_path / "file", SHA256, len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_full_disk_is_reported_before_writing(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = SimpleNamespace(free=len(CONTENT) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    with pytest.raises(InputError, match=r"needs 0\.3 MB .* DATA_CACHE") as error:
        download(server.url, tmp_path / "file", SHA256)
    assert str(tmp_path) in str(error.value)
    assert list(tmp_path.iterdir()) == []
