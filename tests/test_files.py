"""Small files are written whole or not at all, and read back as they were."""

from __future__ import annotations

import ast
import errno
import json
import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.samples import DAMAGED_JSON
from transformer.config import from_dict, to_dict
from transformer.errors import InputError
from transformer.files import (
    expand_user,
    load_file,
    read_json,
    remove_unfinished,
    write_atomically,
    write_json,
)


@dataclass(kw_only=True)
class Measured:
    here: float
    there: dict[str, tuple[float, ...]]
    unknown: float | None
    name: str


@pytest.mark.parametrize("content", DAMAGED_JSON.values(), ids=DAMAGED_JSON)
def test_json_is_readable_and_anything_but_an_object_is_refused(content: bytes, tmp_path: Path):
    path = tmp_path / "file.json"
    write_json(path, {"b": "ä", "a": [1]})
    assert path.read_text(encoding="utf-8").startswith('{\n  "b": "ä",\n')
    assert read_json(path) == {"b": "ä", "a": [1]}
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"file\.json .*delete it to have it made again"):
        read_json(path)


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path):
    with (tmp_path / "file.json").open("wb") as file:
        file.truncate(2**40)  # without taking as much of the disk
    with pytest.raises(InputError, match="it has more than 100 MB"):
        read_json(tmp_path / "file.json")


def test_a_number_that_is_not_finite_is_valid_json_and_comes_back(tmp_path: Path):
    given = Measured(here=math.inf, there={"a": (-math.inf, 1.5)}, unknown=None, name="NaN")
    write_json(tmp_path / "file.json", to_dict(given))
    values = json.loads((tmp_path / "file.json").read_text(), parse_constant=pytest.fail)
    assert values == {
        "here": "Infinity", "there": {"a": ["-Infinity", 1.5]}, "unknown": None, "name": "NaN",
    }  # fmt: skip
    assert from_dict(Measured, read_json(tmp_path / "file.json")) == given
    values["here"] = "NaN"
    assert math.isnan(from_dict(Measured, values).here)
    for wrong in ("inf", [], None):
        with pytest.raises(InputError, match="here"):
            from_dict(Measured, values | {"here": wrong})


def test_json_is_written_in_one_place():
    """Others make digests, variables of the environment or copies, which nobody else reads."""
    root = Path(__file__).parents[1]
    users = {
        path.relative_to(root).as_posix()
        for room in ("transformer", "experiments", "ablations")
        for path in (root / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("dump", "dumps")
        and isinstance(node.value, ast.Name) and node.value.id == "json"
    }  # fmt: skip
    assert users == {
        "transformer/config.py", "transformer/parsing/treebanks.py", "transformer/data/prepared.py",
        "transformer/data/prepare/prepare.py", "transformer/files.py", "transformer/variant.py",
    }  # fmt: skip


def test_an_error_in_a_users_file_has_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # which Python's own names of code would be in
    (tmp_path / "a.py").write_text("from transformer import ModelConfig\n\nModelConfig(d_k=0)\n")
    with pytest.raises(InputError, match=r"^\S*a\.py, line 3: d_k is 0, but must be at least 1"):
        load_file(Path("a.py"), "table")


def test_a_pipe_or_a_device_is_written_to_and_stays(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", "text")
    assert os.read(reader, 9) == b"text" and (tmp_path / "pipe").is_fifo()
    os.close(reader)


def test_a_home_directory_that_is_not_known_is_refused():
    assert expand_user("a/~") == Path("a/~") and expand_user("~") == Path.home()
    with pytest.raises(InputError, match=r"^~nobody-here/text cannot be found.* set HOME, or"):
        expand_user("~nobody-here/text")


def test_a_new_name_is_on_disk_before_anything_else_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A rename is kept in the folder, which is synced after it."""
    synced: list[tuple[int, list[str]]] = []

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, [x.name for x in tmp_path.iterdir()]))

    monkeypatch.setattr(os, "fsync", fsync)
    write_json(tmp_path / "new", {})
    assert synced[-1] == (tmp_path.stat().st_ino, ["new"])


def test_a_file_system_that_syncs_no_folders_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "text"


def test_what_a_killed_process_left_half_written_is_removed_and_what_an_export_left_is_not(
    tmp_path: Path,
):
    (tmp_path / ".ctranslate2.part").mkdir()
    (tmp_path / ".result.json.1f.part").touch()
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".ctranslate2.part"]
