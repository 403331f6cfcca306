"""Small files are written whole or not at all, and read back as they were."""

from __future__ import annotations

import ast
import errno
import json
import math
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.samples import DAMAGED_JSON
from transformer.config import from_dict, to_dict
from transformer.errors import InputError
from transformer.files import (
    check_plain,
    expand_user,
    locked,
    open_plain,
    read_bytes,
    read_json,
    read_text,
    remove_unfinished,
    within,
    write_atomically,
    write_json,
    write_output,
)
from transformer.python_files import load_file


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
    with pytest.raises(InputError, match="has more than 16 MB"):
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


@pytest.mark.slow
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


def test_an_output_may_be_a_pipe_which_stays(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_output(tmp_path / "pipe", "text")
    assert os.read(reader, 9) == b"text" and (tmp_path / "pipe").is_fifo()
    os.close(reader)


ODD = {
    "link": lambda path: path.symlink_to(path.with_name("secret")),
    "dangling": lambda path: path.symlink_to(path.with_name("nothing")),
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.parametrize(
    "use",
    [
        open_plain, check_plain, read_bytes, read_text, read_json,
        lambda path: open_plain(path, "ab"), lambda path: locked(path).__enter__(),
    ],
)  # fmt: skip
def test_what_is_no_plain_file_is_refused_in_one_line_and_changes_nothing(
    make: Callable[[Path], object], use: Callable[[Path], object], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text("{}")
    make(Path("odd"))
    with pytest.raises(InputError, match=r"^odd is a \w+, and not a file: remove it, or"):
        use(Path("odd"))
    assert Path("secret").read_text() == "{}" and not Path("nothing").exists()


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_a_file_that_is_written_replaces_what_has_its_name_but_no_folder(
    make: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text("kept")
    make(Path("odd"))
    if Path("odd").is_dir():
        with pytest.raises(InputError, match="odd is a folder, and not a file"):
            write_atomically(Path("odd"), "text")
    else:
        write_atomically(Path("odd"), "text")
        assert read_text(Path("odd")) == "text"
    assert Path("secret").read_text() == "kept" and not Path("nothing").exists()
    assert len(list(tmp_path.iterdir())) == 2  # nothing half-written


def test_a_name_stays_within_its_folder_which_may_be_a_link(tmp_path: Path):
    (tmp_path / "disk" / "row").mkdir(parents=True)
    (folder := tmp_path / "runs").symlink_to("disk")
    assert within(folder, "row/seed-1") == folder / "row" / "seed-1"
    (tmp_path / "disk" / "other").symlink_to(tmp_path)
    with pytest.raises(InputError, match="other is a link, which may lead anywhere"):
        within(folder, "other/seed-1")
    for name in ("../runs/row", "row/../../row", "/etc"):
        with pytest.raises(InputError, match="leads out of the folder"):
            within(folder, name)


def test_commands_to_a_terminal_are_spelled_out(tmp_path: Path):
    (path := tmp_path / "file").write_text('{"a\\u001b[2J": ["\\u009bä\\t\\n"]}\r\n\x1b]0;')
    assert read_text(path) == '{"a\\u001b[2J": ["\\u009bä\\t\\n"]}\n\\x1b]0;'
    write_json(path, {"a\x1b[2J": ["\x9bä\t\n"]})
    assert read_json(path) == {"a\\x1b[2J": ["\\x9bä\t\n"]}


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
