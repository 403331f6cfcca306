"""The entry points: the help of every command, standard streams, and what is installed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from ablations.cli import PROGRAM as ABLATIONS
from experiments.cli import PROGRAM as EXPERIMENTS

ROOT = Path(__file__).parents[1]
PROGRAMS = {"experiments": EXPERIMENTS, "ablations": ABLATIONS}
COMMANDS = [(module, name) for module, program in PROGRAMS.items() for name in program.commands]
LIST = "-m ablations list"


@pytest.mark.parametrize(("module", "name"), COMMANDS)
def test_the_help_of_each_command_is_whole_and_its_examples_parse(module: str, name: str) -> None:
    program = PROGRAMS[module]
    app = program.app[name]
    assert app.help
    head, _, *examples = (app.help_epilogue or "").splitlines()
    assert head == "Examples:" and examples
    for example in examples:
        words = shlex.split(example.removeprefix("- ").partition(" < ")[0])
        assert words[:4] == ["python", "-m", module, name]
        program.app.parse_args(words[3:])
    for argument in app.assemble_argument_collection(parse_docstring=True).filter_by(show=True):
        said = argument.parameter.help
        assert said, f"{name} {argument.name}"
        if argument.field_info.default is None and argument.name != "--scale":
            assert re.search(r"\[default: [^]]+\]$", said), f"{name} {argument.name}: {said}"


@pytest.mark.slow
@pytest.mark.parametrize("module", PROGRAMS)
def test_the_version_is_printed(module: str) -> None:
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    number = version("attention-is-all-you-need")
    assert re.fullmatch(rf"attention-is-all-you-need {number}, commit \S+\n", done.stdout)


@pytest.mark.parametrize(
    ("command", "redirected", "code"),
    [
        (LIST, "<&- >&- 2>&-", 0),
        (LIST, "| sleep 0", 141),
        (LIST, "> /dev/full", 2),
        ("-m ablations status a", "2> /dev/full", 2),
        ("-m ablations status NAM\u00c9", "PYTHONIOENCODING=ascii", 2),
    ],
)
def test_a_command_ends_as_it_should(command: str, redirected: str, code: int) -> None:
    before, after = (f"env {redirected} ", "") if "=" in redirected else ("", redirected)
    line = f"{before}{sys.executable} {command} {after}; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONUNBUFFERED": "1" if "sleep" in after else ""}
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=False, env=environment)
    assert done.returncode == code, done
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr
    assert done.stderr.count(b"\n") <= 1


def test_every_file_that_the_code_reads_is_installed() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    for package, patterns in setup["package-data"].items():
        folder = ROOT / package
        installed = {path for pattern in patterns for path in folder.glob(pattern)}
        data = {path for path in folder.rglob("*.*") if path.suffix not in (".py", ".pyc")}
        data -= set((ROOT / "experiments" / "results").rglob("*"))
        assert {path for path in data if path.is_file()} <= installed


def test_a_process_of_ours_has_the_streams_that_were_closed() -> None:
    code = (
        "import subprocess, sys; from experiments.command_line import prepare_streams; "
        "prepare_streams(); print('unread'); sys.stderr.write('x'); assert not sys.stdin.read(); "
        "sys.exit(subprocess.call([sys.executable, '-c', 'import sys; sys.stderr.write(str(1))']))"
    )
    line = f'{sys.executable} -c "{code}" <&- >&- 2>&-'
    assert subprocess.run(["bash", "-c", line], check=False).returncode == 0
