"""Files written chunk by chunk, and interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformer.data.prepare.journal import Journal


def journal(folder: Path) -> Journal:
    return Journal(folder / "journal", [folder / "a", folder / "b"])


def contents(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "a").read_bytes(), (folder / "b").read_bytes()


def test_appended_chunks_and_records_are_read_back(tmp_path: Path) -> None:
    with journal(tmp_path) as first:
        first.append([b"one", b"1"], {"n": 1})
    with journal(tmp_path) as second:
        assert second.records == [{"n": 1}] and not second.is_complete
        second.append([b"two", b""], {"n": 2})
        second.complete()
    with journal(tmp_path) as third:
        assert third.records == [{"n": 1}, {"n": 2}] and third.is_complete
        assert third.sizes == [[3, 1], [6, 1]]
    assert contents(tmp_path) == (b"onetwo", b"1")


@pytest.mark.parametrize("torn", [b"", b'{"sizes": [6, 2', b"\0\0\0", b'{"sizes": [9, 9], "rec'])
def test_a_chunk_without_its_line_is_truncated(torn: bytes, tmp_path: Path) -> None:
    with journal(tmp_path) as first:
        first.append([b"one", b"1"], {"n": 1})
    for name, more in (("a", b"tw"), ("b", b"2"), ("journal", torn)):
        with (tmp_path / name).open("ab") as file:
            file.write(more)
    with journal(tmp_path) as second:
        assert second.records == [{"n": 1}]
        second.append([b"two", b"2"], {"n": 2})
    assert contents(tmp_path) == (b"onetwo", b"12")
    with journal(tmp_path) as third:
        assert third.records == [{"n": 1}, {"n": 2}]


def test_a_line_without_its_complete_chunk_is_ignored(tmp_path: Path) -> None:
    """As after a power failure, or if a file was removed."""
    with journal(tmp_path) as first:
        first.append([b"one", b"1"], {"n": 1})
        first.append([b"two", b"2"], {"n": 2})
        first.complete()
    (tmp_path / "a").write_bytes(b"onet")
    with journal(tmp_path) as second:
        assert second.records == [{"n": 1}] and not second.is_complete
    assert contents(tmp_path) == (b"one", b"1")
    (tmp_path / "b").unlink()
    with journal(tmp_path) as third:
        assert third.records == []
    assert contents(tmp_path) == (b"", b"")
