"""Downloads from failing servers: partial files are kept and the result is verified."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.data import scripted_server as server_module
from tests.data.scripted_server import ScriptedServer, cut, other, stalled, status
from transformer.data.fetch import download as download_module
from transformer.data.fetch.download import download
from transformer.errors import InputError

CONTENT = bytes(range(256)) * 997
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(CONTENT).running() as running:
        yield running


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, recorded instead of slept."""
    made: list[float] = []
    monkeypatch.setattr(download_module, "sleep", made.append)
    monkeypatch.setattr(download_module, "_TIMEOUT", (1, 0.3))
    return made


def test_a_broken_connection_is_resumed_after_the_last_byte(
    server: ScriptedServer, tmp_path: Path, pauses: list[float]
) -> None:
    server.script = [cut(1_000), cut(70_000), stalled(5)]
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=1000-", "bytes=71000-", "bytes=71005-"]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_partial_download_is_resumed(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:4_321])
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == ["bytes=4321-"]


def test_a_complete_partial_file_is_not_fetched_again(
    server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_without_range_support_starts_over(server: ScriptedServer, tmp_path: Path) -> None:
    server.script = [cut(1_000), server_module.ignoring_ranges]
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_partial_file_of_other_content_is_discarded(
    server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * 777)
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == ["bytes=777-", None]


def test_wrong_content_is_fetched_a_second_time(server: ScriptedServer, tmp_path: Path) -> None:
    server.script = [other(b"wrong")]
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_wrong_content_twice_is_reported_and_removed(
    server: ScriptedServer, tmp_path: Path
) -> None:
    page = b"<html>Log in to the network</html>"
    server.script = [other(page, "text/html; charset=utf-8")] * 2
    found = hashlib.sha256(page).hexdigest()
    with pytest.raises(InputError, match=f"expected sha256 {SHA256}, found {found}") as error:
        download(server.url, tmp_path / "file", SHA256)
    assert f"({len(page)} bytes, text/html)" in str(error.value)
    assert "\n" not in str(error.value) and server.url in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_size_is_refused_and_the_partial_file_kept(
    server: ScriptedServer, tmp_path: Path
) -> None:
    """As from a network that requires a log-in first."""
    server.script = [cut(1_009), other(b"<html>Log in</html>", "text/html")]
    with pytest.raises(InputError, match=rf"expected {len(CONTENT)} bytes, found 19, text/html;"):
        download(server.url, tmp_path / "file", SHA256, len(CONTENT))
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:1_009]
    download(server.url, tmp_path / "file", SHA256, len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_complete_partial_file_of_known_size_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download("http://127.0.0.1:1/nobody", tmp_path / "file", SHA256, len(CONTENT))
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_busy_server_is_retried_with_exponential_backoff(
    server: ScriptedServer, tmp_path: Path, pauses: list[float]
) -> None:
    server.script = [cut(10), *[status(503)] * 4]
    download(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert pauses == [1, 2, 4, 8, 16]


def test_a_server_that_stays_busy_is_given_up_and_the_partial_file_kept(
    server: ScriptedServer, tmp_path: Path
) -> None:
    server.script = [cut(10), *[status(503)] * 99]
    with pytest.raises(InputError, match="HTTP 503") as error:
        download(server.url, tmp_path / "file", SHA256)
    assert "DATA_MIRROR" in str(error.value)
    assert len(server.paths) == 6
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:10]


def test_a_missing_remote_file_is_requested_once(server: ScriptedServer, tmp_path: Path) -> None:
    server.script = [status(404)] * 9
    with pytest.raises(InputError, match="HTTP 404"):
        download(server.url, tmp_path / "file", SHA256)
    assert len(server.paths) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_before_writing(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = SimpleNamespace(free=len(CONTENT) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    with pytest.raises(InputError, match=r"needs 0\.3 MB .* DATA_CACHE") as error:
        download(server.url, tmp_path / "file", SHA256)
    assert str(tmp_path) in str(error.value)
    assert list(tmp_path.iterdir()) == []
