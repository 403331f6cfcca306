"""Locks and marks in the cache, and caches that cannot be written."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from transformer.data.fetch.cache import cache_directory, exclusive, is_verified, mark_verified
from transformer.errors import InputError


def test_a_waiting_process_says_what_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[str] = []

    def wait() -> None:
        with exclusive(tmp_path / "a" / "x.tgz", "fetches x.tgz"):
            order.append("second")

    waiting = threading.Thread(target=wait)
    with exclusive(tmp_path / "a" / "x.tgz", "fetches x.tgz"):
        waiting.start()
        while not (said := capsys.readouterr().err):
            waiting.join(0.01)
        order.append("first")
    waiting.join()
    assert said == "waiting for another process that fetches x.tgz\n"
    assert order == ["first", "second"]


def test_a_free_lock_is_taken_silently(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        with exclusive(tmp_path / "x", "fetches x"):
            pass
    assert capsys.readouterr() == ("", "")


def test_a_cache_that_is_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DATA_CACHE", str(tmp_path / "file"))
    with (
        pytest.raises(InputError, match=rf"{tmp_path}/file.* cannot be written \(.*DATA_CACHE"),
        exclusive(cache_directory() / "downloads" / "x", "fetches x"),
    ):
        pass


def test_a_cache_without_permission_is_named() -> None:
    path = cache_directory() / "downloads" / "x"
    with pytest.raises(InputError) as error, exclusive(path, "fetches x"):
        raise PermissionError(13, "Permission denied", str(path))
    assert str(error.value) == (
        f"{path} cannot be written (Permission denied): set DATA_CACHE to a folder of your own"
    )


def test_other_errors_are_passed_on(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), exclusive(cache_directory() / "x", "fetches x"):
        raise PermissionError(13, "Permission denied", str(tmp_path / "elsewhere"))
    with pytest.raises(OSError, match="No space"), exclusive(cache_directory() / "x", "fetches x"):
        raise OSError(28, "No space left on device", str(cache_directory() / "x"))


def test_a_mark_is_valid_while_the_file_is_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("abc")
    assert not is_verified(path, "it")
    mark_verified(path, "it")
    assert is_verified(path, "it") and not is_verified(path, "another")
    path.write_text("abcd")
    assert not is_verified(path, "it")
    path.unlink()
    assert not is_verified(path, "it")
