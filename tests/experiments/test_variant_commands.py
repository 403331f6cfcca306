"""A variant in a user's file outside the package, through every command that needs its model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ablations.runs.processes import Finished
from tests.experiments.conftest import Command
from tests.test_variant import GELU

EXPERIMENT = """
from experiments.records.experiment import Experiment
from transformer import Config, DataConfig, folder_corpus, override

SIZES = dict(num_layers=1, d_model=16, d_ff=16, num_heads=2, d_k=8, d_v=8, dropout=0.0)
STEPS = dict(max_steps=4, warmup_steps=2, checkpoint_every_steps=2, validate_every_steps=2)
config = Config(data=DataConfig(corpus=folder_corpus(FOLDER), tokens_per_batch=101, max_length=41))
config = override(config, vocab_size=61, max_extra_length=2, precision="fp32", **SIZES, **STEPS)
EXPERIMENT = Experiment(name="numbers", description="", config=config)
"""


@pytest.fixture
def trained(command: Command, folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    mine, run = tmp_path / "mine.py", tmp_path / "run"
    mine.write_text(GELU)
    (tmp_path / "numbers.py").write_text(EXPERIMENT.replace("FOLDER", repr(str(folder))))
    train(command, tmp_path)
    return mine, run


def train(command: Command, place: Path) -> Finished:
    return command(
        "experiments", "train", place / "numbers.py", "--directory", place / "run", "--log", "none",
        "--set", f"model={place / 'mine.py'}:LeakyTransformer",
    )  # fmt: skip


def test_every_command_works_with_the_file_and_says_which_without_it(
    command: Command, trained: tuple[Path, Path], tmp_path: Path
) -> None:
    mine, run = trained
    assert (run / "result.json").is_file()
    text = b"one two\n"
    export = tmp_path / "export"
    for words, stdin in (
        (("evaluate", run), b""),
        (("translate", run), text),
        (("attention", run, "one two", "--output", tmp_path / "a.html"), b""),
        (("export", run, "--format", "safetensors", "--output", export), b""),
        (("translate", export), text),
    ):
        missing = command("experiments", *words, stdin=stdin)
        assert missing.code == 2 and missing.stderr.count("\n") == 1
        assert "a variant is in mine, which is not installed: add --variant" in missing.stderr
        done = command("experiments", *words, "--variant", mine, stdin=stdin)
        assert done.code == 0, done.stderr
    refused = command(
        "experiments", "export", run, "--format", "ctranslate2", "--variant", mine,
    )  # fmt: skip
    assert refused.code == 2
    assert "CTranslate2 has no LeakyTransformer" in refused.stderr


def test_a_changed_source_is_refused_on_resuming(
    command: Command, trained: tuple[Path, Path], tmp_path: Path
) -> None:
    mine, run = trained
    (run / "result.json").unlink()
    mine.write_text(GELU.replace("SLOPE = 0.1", "SLOPE = 0.2"))
    refused = train(command, tmp_path)
    assert refused.code == 2 and "model.model: 'mine:LeakyTransformer@" in refused.stderr
    mine.write_text(GELU)
    assert train(command, tmp_path).code == 0
