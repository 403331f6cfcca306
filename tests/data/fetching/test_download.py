"""A download from a server that fails: what came is kept, and the file is the declared one."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.data import scripted_server as server_module
from tests.data.scripted_server import ScriptedServer, cut, other, stalled, status
from transformer.data.fetching import download as download_module
from transformer.data.fetching.download import download
from transformer.errors import InputError

CONTENT = bytes(range(256)) * 997
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(CONTENT).running() as running:
        yield running


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those between the tries, which are noted and not made."""
    made: list[float] = []
    monkeypatch.setattr(download_module, "sleep", made.append)
    monkeypatch.setattr(download_module, "_TIMEOUT", (1, 0.3))
    return made


def test_what_broke_off_goes_on_behind_the_last_byte(
    server: ScriptedServer, tmp_path: Path, pauses: list[float]
) -> None:
    server.script = [cut(1_000), cut(70_000), stalled(5)]
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=1000-", "bytes=71000-", "bytes=71005-"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_another_start_goes_on_where_the_last_was_stopped(
    server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:4_321])
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == ["bytes=4321-"]


def test_what_had_come_whole_is_not_fetched_again(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_that_knows_no_ranges_begins_anew(server: ScriptedServer, tmp_path: Path) -> None:
    server.script = [cut(1_000), server_module.ignoring_ranges]
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_of_something_else_is_thrown_away(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * 777)
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == ["bytes=777-", None]


def test_wrong_bytes_are_fetched_once_more(server: ScriptedServer, tmp_path: Path) -> None:
    server.script = [other(b"wrong")]
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_wrong_bytes_twice_are_told_and_removed(server: ScriptedServer, tmp_path: Path) -> None:
    page = b"<html>Log in to the network</html>"
    server.script = [other(page, "text/html; charset=utf-8")] * 2
    found = hashlib.sha256(page).hexdigest()
    with pytest.raises(InputError, match=f"expected sha256 {SHA256}, found {found}") as error:
        download(server.url, tmp_path / "file", SHA256)
    assert f"({len(page)} bytes, text/html)" in str(error.value)
    assert "\n" not in str(error.value) and server.url in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_another_size_than_declared_is_refused_and_what_came_is_kept(
    server: ScriptedServer, tmp_path: Path
) -> None:
    """As from a network that wants one to log in first."""
    server.script = [cut(1_009), other(b"<html>Log in</html>", "text/html")]
    with pytest.raises(InputError, match=rf"expected {len(CONTENT)} bytes, found 19, text/html;"):
        download(server.url, tmp_path / "file", SHA256, len(CONTENT))
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:1_009]
    download(server.url, tmp_path / "file", SHA256, len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_what_had_come_whole_needs_no_server_where_the_size_is_known(tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download("http://127.0.0.1:1/nobody", tmp_path / "file", SHA256, len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_busy_server_is_asked_again_after_longer_and_longer_pauses(
    server: ScriptedServer, tmp_path: Path, pauses: list[float]
) -> None:
    server.script = [cut(10), *[status(503)] * 4]
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert pauses == [1, 2, 4, 8, 16]


def test_one_that_stays_busy_is_given_up_and_what_came_is_kept(
    server: ScriptedServer, tmp_path: Path
) -> None:
    server.script = [cut(10), *[status(503)] * 99]
    with pytest.raises(InputError, match="HTTP 503") as error:
        download(server.url, tmp_path / "file", SHA256)
    assert "DATA_MIRROR" in str(error.value)
    assert len(server.paths) == 6
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:10]


def test_a_file_that_is_not_there_is_asked_for_once(server: ScriptedServer, tmp_path: Path) -> None:
    server.script = [status(404)] * 9
    with pytest.raises(InputError, match="HTTP 404"):
        download(server.url, tmp_path / "file", SHA256)
    assert len(server.paths) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_told_before_a_byte_is_written(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = SimpleNamespace(free=len(CONTENT) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    with pytest.raises(InputError, match=r"needs 0\.3 MB .* DATA_CACHE") as error:
        download(server.url, tmp_path / "file", SHA256)
    assert str(tmp_path) in str(error.value)
    assert list(tmp_path.iterdir()) == []
