"""The help of the entry points: every command, option, default and example."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ablations.cli import PROGRAM as ABLATIONS
from ablations.tables.plan import claim_plan
from experiments.cli import PROGRAM as EXPERIMENTS
from experiments.command_line import Parser
from tests.ablations.samples import small_plan

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


@pytest.mark.parametrize(
    "arguments",
    [
        "experiments --help",
        "experiments train --help",
        "experiments list",
        "ablations --help",
        "ablations list",
        "ablations status out",
    ],
)
def test_it_answers_within_half_a_second(arguments: str, tmp_path: Path) -> None:
    claim_plan(tmp_path / "out", small_plan())
    command = [sys.executable, "-m", *arguments.split()]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    before = os.times()
    subprocess.run(command, cwd=tmp_path, env=path, capture_output=True, check=True)
    after = os.times()
    # Processor time: wall-clock time would include what else the machine does.
    seconds = after.children_user + after.children_system
    assert seconds - before.children_user - before.children_system < 0.5
