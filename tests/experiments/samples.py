"""A tiny experiment, and the comparison of two runs of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from experiments.records.experiment import Experiment
from experiments.records.outputs import step_checkpoints
from experiments.records.result import Result, load_result
from experiments.run import run
from tests.samples import tiny
from transformer.config import override
from transformer.data.corpora.folders import folder_corpus


def tiny_experiment(
    folder: Path, splits: tuple[str, ...] = ("valid", "test"), **changes: object
) -> Experiment:
    """About nine steps per epoch, so that forty steps end in the middle of the fifth."""
    config = tiny(
        folder_corpus(folder),
        num_layers=1,
        dropout=0.1,
        max_steps=40,
        checkpoint_every_steps=10,
        validate_every_steps=15,
        log_every_steps=1,
        average_checkpoints=2,
        max_extra_length=5,  # what has learned so little rarely ends by itself
    )
    return Experiment(
        name="numbers",
        description="digits as words",
        config=override(config, **changes),
        splits=splits,
        group="tests/tiny",
        tags=("tiny", "numbers"),
    )


def result_of(experiment: Experiment, directory: Path, **settings: Any) -> Result:
    """Run in this process and return the result."""
    result = run(experiment, directory, **settings)
    assert result is not None
    return result


def last_checkpoint(directory: Path) -> dict[str, Any]:
    """The newest checkpoint's contents."""
    _, path = step_checkpoints(directory)[-1]
    return torch.load(path, map_location="cpu", weights_only=True)


def assert_same_end(directory: Path, other: Path) -> None:
    """Check for equal weights and optimizer states, bit for bit, and equal logged figures."""
    mine, theirs = (last_checkpoint(d) for d in (directory, other))
    for part in ("global_step", "state_dict", "optimizer_states"):
        leaves = tree_leaves(mine[part]), tree_leaves(theirs[part])
        for one, same in zip(*leaves, strict=True):
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(one, same, rtol=0, atol=0)
            else:
                assert one == same
    assert (directory / "metrics.csv").read_text() == (other / "metrics.csv").read_text()
    assert outcome(directory) == outcome(other)


def outcome(directory: Path) -> dict[str, object]:
    """The result without times, of which checkpoints keep some, memory and the commit."""
    result = load_result(directory)
    assert result is not None
    incidental = (
        "train_seconds", "tokens_per_second", "peak_memory_bytes", "finished_at", "commit",
        "files_digest", "sentences_per_second",
    )  # fmt: skip
    return {k: v for k, v in dataclasses.asdict(result).items() if k not in incidental}
