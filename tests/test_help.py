"""The help of the entry points: every command, option, default and example."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ablations.cli import PROGRAM as ABLATIONS
from experiments.cli import PROGRAM as EXPERIMENTS

ROOT = Path(__file__).parents[1]
PROGRAMS = {"experiments": EXPERIMENTS, "ablations": ABLATIONS}
COMMANDS = [(module, name) for module, program in PROGRAMS.items() for name in program.commands]


@pytest.mark.parametrize(("module", "name"), COMMANDS)
def test_each_command_has_a_description_and_examples_that_parse(module: str, name: str) -> None:
    app = PROGRAMS[module].app[name]
    assert app.help
    head, _, *examples = (app.help_epilogue or "").splitlines()
    assert head == "Examples:" and examples
    for example in examples:
        words = shlex.split(example.removeprefix("- ").partition(" < ")[0])
        assert words[:4] == ["python", "-m", module, name]
        PROGRAMS[module].app.parse_args(words[3:])


@pytest.mark.parametrize(("module", "name"), COMMANDS)
def test_each_argument_has_a_help_and_each_option_a_default(module: str, name: str) -> None:
    arguments = PROGRAMS[module].app[name].assemble_argument_collection(parse_docstring=True)
    for argument in arguments.filter_by(show=True):
        said = argument.parameter.help
        assert said, f"{name} {argument.name}"
        if argument.field_info.default is None and argument.name != "--scale":
            assert re.search(r"\[default: [^]]+\]$", said), f"{name} {argument.name}: {said}"


@pytest.mark.parametrize("module", PROGRAMS)
def test_the_version_is_printed(module: str) -> None:
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    number = version("attention-is-all-you-need")
    assert re.fullmatch(rf"attention-is-all-you-need {number}, commit \S+\n", done.stdout)
