"""One corpus, one cache and one finished run for all tests of this folder."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from experiments.run import run
from tests.ablations.runs.processes import Finished, Running, start
from tests.experiments.samples import tiny_experiment
from tests.samples import write_corpus

Start = Callable[..., Running]
Command = Callable[..., Finished]


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared-cache")


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


@pytest.fixture(scope="session")
def finished(
    folder: Path, shared_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The directory of a finished run, which no test may change."""
    directory = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATA_CACHE", str(shared_cache))
        patch.setenv("WANDB_MODE", "offline")
        run(tiny_experiment(folder), directory)
    yield directory


@pytest.fixture
def begin(tmp_path: Path) -> Start:
    """Start a command in a process of its own."""
    numbers = itertools.count()

    def begin(
        *arguments: str | Path,
        stdin: bytes | None = b"",
        largest_file: int | None = None,
        spare_memory: int | None = None,
        **environment: str,
    ) -> Running:
        merged = {**os.environ, **environment}
        streams = tmp_path / f"streams-{next(numbers)}"
        return start(
            streams,
            arguments,
            environment=merged,
            stdin=stdin,
            largest_file=largest_file,
            spare_memory=spare_memory,
        )

    return begin


@pytest.fixture
def command(begin: Start) -> Command:
    """Run a command to its end."""
    return lambda *arguments, **settings: begin(*arguments, **settings).finish()
