"""The help of the entry points: every command, option, default and example."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ablations.cli import PROGRAM as ABLATIONS
from experiments.cli import PROGRAM as EXPERIMENTS
from experiments.command_line import Parser

ROOT = Path(__file__).parents[1]
PARSERS = {"experiments": EXPERIMENTS.parser, "ablations": ABLATIONS.parser}


def commands(parser: Parser) -> dict[str, Parser]:
    (found,) = (x.choices for x in parser._actions if isinstance(x, argparse._SubParsersAction))
    return found


COMMANDS = [
    pytest.param(name, command, id=f"{module} {name}".strip())
    for module, parser in PARSERS.items()
    for name, command in {"": parser, **commands(parser)}.items()
]


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_each_command_has_a_description_and_examples_that_parse(name: str, command: Parser) -> None:
    assert command.description
    head, *examples = (command.epilog or "").splitlines()
    assert head == "examples:" and examples
    module = command.prog.split()[2]
    for example in examples:
        words = shlex.split(example.partition(" < ")[0])
        assert words[:3] == ["python", "-m", module]
        assert not name or words[3] == name
        PARSERS[module].parse_args(words[3:])


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_each_option_states_its_default_in_the_same_way(name: str, command: Parser) -> None:
    formatter = command._get_formatter()
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        said = formatter._expand_help(action)
        has_default = action.option_strings and action.nargs != 0 and not action.required
        has_default = has_default or action.nargs == "*"
        pattern = r"[^()]+ \(default: [^()]+\)" if has_default else r"[^()]+"
        assert re.fullmatch(pattern, said), f"{name} {action.dest}: {said}"


@pytest.mark.parametrize("module", PARSERS)
def test_the_version_is_printed(module: str) -> None:
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    number = version("attention-is-all-you-need")
    assert re.fullmatch(rf"attention-is-all-you-need {number}, commit \S+\n", done.stdout)
