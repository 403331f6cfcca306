"""Place and locks of the cache, and files that are whole or not there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from transformer.data.fetch.cache import cache_directory, exclusive, making, write_once
from transformer.errors import InputError


def test_the_cache_directory_can_be_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("DATA_CACHE", "~/data")
    assert cache_directory() == Path("/home/ada/data")
    monkeypatch.delenv("DATA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/ada")
    assert cache_directory() == Path("/var/ada/attention-is-all-you-need")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path("/home/ada/.cache/attention-is-all-you-need")


def test_a_waiting_process_says_what_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []

    def wait() -> None:
        with exclusive(tmp_path / "a" / "x.tgz", "fetches x.tgz"):
            order.append("second")

    waiting = threading.Thread(target=wait)
    with exclusive(tmp_path / "a" / "x.tgz", "fetches x.tgz"):
        assert capsys.readouterr().err == ""
        waiting.start()
        while not (said := capsys.readouterr().err):
            waiting.join(0.01)
        order.append("first")
    waiting.join()
    assert said == "waiting for another process that fetches x.tgz\n"
    assert order == ["first", "second"]


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DATA_CACHE", str(tmp_path / "file"))
    with (
        pytest.raises(InputError, match=rf"{tmp_path}/file.* cannot be written \(.*DATA_CACHE"),
        exclusive(cache_directory() / "downloads" / "x", "fetches x"),
    ):
        pass


def test_what_is_not_whole_is_not_there(tmp_path: Path) -> None:
    def write(part: Path, fails: bool = False) -> None:
        (part / "a").write_text("a")
        if fails:
            raise KeyError

    for fails in (True, False):
        (tmp_path / "folder.part" / "left").mkdir(parents=True)  # by a kill
        if fails:
            with pytest.raises(KeyError):
                write_once(tmp_path / "folder", lambda part: write(part, fails=True))
            assert [path.name for path in tmp_path.iterdir()] == ["folder.lock"]
    assert write_once(tmp_path / "folder", write) == tmp_path / "folder"
    assert write_once(tmp_path / "folder", lambda _: pytest.fail("wrote it again")).is_dir()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["a"]
    with making(tmp_path / "file") as part:
        part.write_text("whole")
        assert not (tmp_path / "file").exists()
    assert (tmp_path / "file").read_text() == "whole"
    assert not list(tmp_path.glob("*.part"))
