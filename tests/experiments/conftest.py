"""One corpus, one cache and one finished run for all tests of this folder."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import PROGRAM
from experiments.records.experiment import Experiment
from experiments.run import run
from tests.ablations.runs.processes import Finished, Running, start
from tests.experiments.samples import tiny_experiment
from tests.samples import write_corpus

Start = Callable[..., Running]
Command = Callable[..., Finished]


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of all tests here, and of the fixtures that live longer than one test."""
    cache = tmp_path_factory.mktemp("shared-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATA_CACHE", str(cache))
        patch.setenv("WANDB_MODE", "offline")
        yield cache


@pytest.fixture(autouse=True)
def _surroundings_of_runs(
    shared_cache: Path, _own_surroundings: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DATA_CACHE", str(shared_cache))
    monkeypatch.setenv("WANDB_MODE", "disabled")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder of files."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "numbers")


@pytest.fixture
def experiment(folder: Path) -> Experiment:
    """That of the finished run."""
    return tiny_experiment(folder)


@pytest.fixture(scope="session")
def finished(folder: Path, shared_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished run, which no test may change."""
    directory = tmp_path_factory.mktemp("finished") / "run"
    run(tiny_experiment(folder), directory)
    return directory


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, which a test may change."""
    return shutil.copytree(finished, tmp_path / "run", symlinks=True)


@pytest.fixture
def unfinished(copy: Path) -> Path:
    """A run as it would be if it was killed after its last step, before the result."""
    (copy / "result.json").unlink()
    return copy


@pytest.fixture
def begin(tmp_path: Path) -> Start:
    """Start a command in a process of its own; ``settings`` are those of ``start``."""
    numbers = itertools.count()

    def begin(
        *arguments: str | Path, environment: Mapping[str, str] = os.environ, **settings: Any
    ) -> Running:
        streams = tmp_path / f"streams-{next(numbers)}"
        return start(streams, arguments, environment=environment, **settings)

    return begin


@pytest.fixture
def command(begin: Start) -> Command:
    """Run a command to its end."""
    return lambda *arguments, **settings: begin(*arguments, **settings).finish()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Command:
    """Carry out a command of ``python -m experiments`` in this process."""

    def call(*words: str | Path) -> Finished:
        capsys.readouterr()
        code = PROGRAM.run([str(word) for word in words])
        said = capsys.readouterr()
        return Finished(code, said.out, said.err)

    return call
