"""Small files are written whole or not at all, and read back as they were."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from pathlib import Path

import pytest

from experiments.run.results import load_result, save_result
from transformer.errors import InputError
from transformer.files import read_json, write_atomically, write_json


@pytest.mark.parametrize("content", ["", "ä\n\u2028\r\n", b"\x00\xff"])
def test_a_file_holds_what_was_written(content: str | bytes, tmp_path: Path):
    path = tmp_path / "file"
    write_atomically(path, "before")
    write_atomically(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "file"
    write_atomically(path, "before")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(*((os, "fsync") if fails == "fsync" else (Path, "replace")), full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/file'"):
        write_atomically(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[1]", b"null"])
def test_json_is_readable_and_anything_but_an_object_is_refused(content: bytes, tmp_path: Path):
    path = tmp_path / "file.json"
    write_json(path, {"b": "ä", "a": [1]})
    assert path.read_text(encoding="utf-8").startswith('{\n  "b": "ä",\n')
    assert read_json(path) == {"b": "ä", "a": [1]}
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"file\.json .*delete it to have it made again"):
        read_json(path)


def test_a_result_comes_back_as_it_was(finished: Path, tmp_path: Path):
    assert load_result(tmp_path) is None
    result = load_result(finished)
    assert result is not None
    for changed in (result, dataclasses.replace(result, test_bleu=None, perplexity=float("inf"))):
        save_result(tmp_path, changed)
        assert load_result(tmp_path) == changed


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"blue": 1.0}, "blue"), ({"perplexity": None}, "perplexity"), ({"steps": "many"}, "steps")],
)
def test_a_result_of_another_version_is_refused_with_its_file_and_field(
    changes: dict[str, object], said: str, finished: Path, tmp_path: Path
):
    written = json.loads((finished / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(written | changes))
    with pytest.raises(
        InputError, match=rf"result\.json does not fit this version.*{said}.*; remove the file"
    ):
        load_result(tmp_path)
