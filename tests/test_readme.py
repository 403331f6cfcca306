"""What the README shows exists and runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ablations.tables import load_table

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    shlex.split(line.partition(" < ")[0], comments=True)
    for language, block in BLOCKS
    if not language
    for line in block.splitlines()
    if line
]


def snippet(word: str) -> str:
    (found,) = (block for language, block in BLOCKS if language == "python" and word in block)
    return found


def test_the_two_commands_stand_at_the_beginning() -> None:
    assert COMMANDS[:2] == [["make", "table3"], ["make", "test"]]


@pytest.mark.parametrize("target", sorted({c[1] for c in COMMANDS if c[0] == "make"}))
def test_each_make_target_exists(target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [command for command in COMMANDS if command[0] == "python"],
    ids=" ".join,
)
def test_each_command_and_option_exists(command: list[str]) -> None:
    """The parser reads the help of a command only after all else that stands before it."""
    options = [word for word in command if word.startswith("--")]
    done = subprocess.run(
        [sys.executable, *command[1:4], "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert all(option in done.stdout for option in options)


def test_the_table_of_ones_own_is_one(tmp_path: Path) -> None:
    path = tmp_path / "depth.py"
    path.write_text(snippet("TABLE = Table("), encoding="utf-8")
    table = load_table(str(path))
    assert [row.name for row in table.rows] == ["base", "deep"]


@pytest.mark.skipif("DATA_MIRROR" not in os.environ, reason="DATA_MIRROR is not set")
def test_the_library_example_trains(tmp_path: Path) -> None:
    code = snippet("Trainer(max_steps").replace("max_steps=1_000", "max_steps=2")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
