"""The last checkpoint is scored, and the mean of more of them besides."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from experiments.callbacks.checkpoints import step_checkpoints
from experiments.callbacks.display import Display
from experiments.evaluate.scoring import choose_checkpoints, load_model, score_average
from experiments.run.results import load_result, score_lines
from tests.experiments.samples import result_of, tiny_experiment
from transformer.data.preparation.prepare import prepare
from transformer.evaluation.perplexity import perplexity, translate

CPU = torch.device("cpu")


def test_both_are_scored_and_their_translations_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    experiment = tiny_experiment(
        folder, average_checkpoints=1, also_average=3, max_steps=10, checkpoint_every_steps=2
    )
    result = result_of(experiment, tmp_path / "run")
    assert [step for step, _ in step_checkpoints(tmp_path / "run")] == [6, 8, 10]
    assert result == load_result(tmp_path / "run")
    corpus = prepare(experiment.config)
    model = load_model(experiment, choose_checkpoints(experiment, tmp_path / "run", 3), device=CPU)
    sources, references = corpus.text("valid")
    vocabulary = corpus.vocabulary()
    assert result.averaged is not None and result.averaged.checkpoints == 3
    expected = perplexity(model, vocabulary, sources, references).per_token
    assert result.averaged.perplexity == expected != result.perplexity
    translations = translate(model, vocabulary, sources, experiment.config.decoding)
    files = [f"{name}.hypotheses.txt" for name in ("valid", "valid-averaged", "test")]
    averaged = (tmp_path / "run" / files[1]).read_text(encoding="utf-8")
    assert averaged == "".join(f"{line}\n" for line in translations)
    found = sorted(path.name for path in (tmp_path / "run").glob("*.hypotheses.txt"))
    assert found == sorted(files)
    assert "(mean of 3 checkpoints)" in score_lines(result)[1]


def test_what_was_scored_already_is_not_scored_again(finished: Path, folder: Path):
    """The run was scored with both its checkpoints, and has no more of them."""
    experiment = tiny_experiment(folder, also_average=5)
    corpus = prepare(experiment.config)
    besides = choose_checkpoints(experiment, finished)
    scored = score_average(
        experiment,
        finished,
        corpus.vocabulary(),
        corpus.text("valid"),
        besides=besides,
        device=CPU,
        display=Display(None),
    )
    assert scored is None
