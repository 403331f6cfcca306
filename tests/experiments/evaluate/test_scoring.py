"""A run scores its checkpoints, and a mean of more of them if that is configured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from experiments.evaluate.trained import load_trained
from experiments.records.checkpoints import step_checkpoints
from experiments.records.result import load_result, score_lines
from tests.experiments.samples import result_of, tiny_experiment
from transformer.data.prepare.prepare import prepare
from transformer.evaluation.perplexity import perplexity, translate

CPU = torch.device("cpu")


def test_both_means_are_scored_and_their_translations_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    experiment = tiny_experiment(
        folder, average_checkpoints=1, also_average=3, max_steps=10, checkpoint_every_steps=2
    )
    result = result_of(experiment, tmp_path / "run")
    assert [step for step, _ in step_checkpoints(tmp_path / "run")] == [6, 8, 10]
    assert result == load_result(tmp_path / "run")
    sources, references = prepare(experiment.config).text("valid")
    trained = load_trained(tmp_path / "run", 3, device=CPU)
    model, vocabulary = trained.model, trained.vocabulary
    assert result.averaged is not None and result.averaged.checkpoints == 3
    expected = perplexity(model, vocabulary, sources, references).per_token
    assert result.averaged.perplexity == expected != result.perplexity
    translations = translate(model, vocabulary, sources, experiment.config.decoding)
    files = {path.name: path for path in (tmp_path / "run").glob("*.hypotheses.txt")}
    assert sorted(files) == [
        f"{name}.hypotheses.txt" for name in ("test", "valid-averaged", "valid")
    ]
    averaged = files["valid-averaged.hypotheses.txt"].read_text(encoding="utf-8")
    assert averaged == "".join(f"{line}\n" for line in translations)
    assert "(mean of 3 checkpoints)" in score_lines(result)[1]


def test_the_same_checkpoints_are_not_scored_twice(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    experiment = tiny_experiment(
        folder, ("valid",), also_average=5, max_steps=4, checkpoint_every_steps=2
    )
    result = result_of(experiment, tmp_path / "run")
    assert (result.averaged_checkpoints, result.averaged) == (2, None)
    assert not list((tmp_path / "run").glob("valid-averaged*"))
