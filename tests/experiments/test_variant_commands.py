"""A variant in a user's file outside the package, through every command that needs its model."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from experiments.cli import PROGRAM
from tests.test_variant import GELU
from transformer.variant import FILES_VARIABLE

Said = pytest.CaptureFixture[str]
EXPERIMENT = """
from experiments.records.experiment import Experiment
from transformer import Config, DataConfig, folder_corpus, override

SIZES = dict(num_layers=1, d_model=16, d_ff=16, num_heads=2, d_k=8, d_v=8, dropout=0.0)
STEPS = dict(max_steps=4, warmup_steps=2, checkpoint_every_steps=2, validate_every_steps=2)
config = Config(data=DataConfig(corpus=folder_corpus(FOLDER), tokens_per_batch=101, max_length=41))
config = override(config, vocab_size=61, max_extra_length=2, precision="fp32", **SIZES, **STEPS)
EXPERIMENT = Experiment(name="numbers", description="", config=config)
"""


def test_every_command_works_with_the_file_as_it_was_and_says_which_without_it(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine, run, export = tmp_path / "mine.py", tmp_path / "run", tmp_path / "export"
    mine.write_text(GELU)
    (tmp_path / "numbers.py").write_text(EXPERIMENT.replace("FOLDER", repr(str(folder))))

    def code_of(*words: str | Path) -> int:
        monkeypatch.setenv(FILES_VARIABLE, "")  # as in a new process, which knows no file yet
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one two\n")))
        return PROGRAM.run([str(word) for word in words])

    train = (
        "train", tmp_path / "numbers.py", "--directory", run, "--log", "none",
        "--set", f"model={mine}:LeakyTransformer",
    )  # fmt: skip
    assert code_of(*train) == 0
    assert (run / "result.json").is_file()
    for words in (
        ("evaluate", run),
        ("translate", run),
        ("attention", run, "one two", "--output", tmp_path / "a.html"),
        ("export", run, "--format", "safetensors", "--output", export),
        ("translate", export),
    ):
        capsys.readouterr()
        assert code_of(*words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "a variant is in mine, which is not installed: add --variant" in line
        assert code_of(*words, "--variant", mine) == 0
    assert code_of("export", run, "--format", "ctranslate2", "--variant", mine) == 2
    assert "CTranslate2 has no LeakyTransformer" in capsys.readouterr().err
    (run / "result.json").unlink()
    mine.write_text(GELU.replace("SLOPE = 0.1", "SLOPE = 0.2"))
    assert code_of(*train) == 2
    assert "model.model: 'mine:LeakyTransformer@" in capsys.readouterr().err
    mine.write_text(GELU)
    assert code_of(*train) == 0
