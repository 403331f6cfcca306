"""What one run leaves in its directory."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from experiments.callbacks.checkpoints import step_checkpoints
from experiments.run.experiment import load_experiment
from experiments.run.progress import read_progress
from experiments.run.results import Result, load_result, score_lines
from tests.experiments.samples import last_checkpoint, tiny_experiment
from transformer.data.module import TranslationDataModule
from transformer.data.preparation.prepare import prepare
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters, training_flops
from transformer.training.module import TransformerModule


def _result(directory: Path) -> Result:
    result = load_result(directory)
    assert result is not None
    return result


def _metrics(directory: Path) -> list[dict[str, str]]:
    with (directory / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_config_json_is_the_experiment(finished: Path, folder: Path):
    assert load_experiment(finished) == tiny_experiment(folder)


def test_the_result_has_every_field(finished: Path):
    written = json.loads((finished / "result.json").read_text())
    assert written["experiment"] == "numbers"
    assert written["seed"] == 3
    assert written["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp")
    assert {"python", "torch", "lightning", "sentencepiece", "sacrebleu", "sacremoses"} <= set(
        written["versions"]
    )
    assert written["device"] and written["commit"]
    assert written["finished_at"].endswith("+00:00")
    unknown = {name for name, value in written.items() if value is None}
    # not asked for, and a CPU has no nominal peak
    assert unknown == {"averaged", "flops_nominal"}


def test_a_result_from_before_bleu_was_counted_twice_can_be_read(finished: Path, tmp_path: Path):
    written = json.loads((finished / "result.json").read_text())
    for name in ("tokenised_bleu", "tokenised_bleu_signature", "test_tokenised_bleu", "averaged"):
        del written[name]
    (tmp_path / "result.json").write_text(json.dumps(written))
    assert len(score_lines(_result(tmp_path))) == 3
    assert all("tokenised" not in line for line in score_lines(_result(tmp_path)))


def test_a_result_of_another_version_is_refused_with_the_remedy(finished: Path, tmp_path: Path):
    written = (finished / "result.json").read_text()
    (tmp_path / "result.json").write_text(written.replace('"flops"', '"work"'))
    with pytest.raises(InputError, match=r"does not fit this version .* remove the file, and the"):
        load_result(tmp_path)


def test_the_figures_of_the_result_agree(finished: Path, folder: Path):
    result, config = _result(finished), tiny_experiment(folder).config
    assert result.steps == 40
    assert result.parameters == count_parameters(config.model)
    assert result.parameters_paper_vocab == count_parameters(config.model, 40_960)
    assert result.flops == training_flops(config.model, result.source_tokens, result.target_tokens)
    assert result.tokens_per_second == result.target_tokens / result.train_seconds
    assert result.averaged_checkpoints == 2
    assert 0 <= result.bleu <= 100
    assert result.perplexity > 1 and result.perplexity_per_char > 1


def test_tokens_are_those_of_the_batches_that_were_planned(finished: Path, folder: Path):
    config = tiny_experiment(folder).config
    data = TranslationDataModule(config)
    plan, lengths = data.train_plan(), data.corpus.store("train").lengths
    pairs = [pair for step in range(40) for pair in plan.batch(step)]
    result = _result(finished)
    assert (result.source_tokens, result.target_tokens) == tuple(lengths[pairs].sum(0).tolist())
    assert result.corpus_target_tokens == sum(target for _, target in lengths.tolist())


def test_every_step_and_validation_is_in_the_metrics(finished: Path):
    rows = _metrics(finished)
    assert [int(row["step"]) for row in rows if row["loss"]] == list(range(1, 41))
    assert [int(row["step"]) for row in rows if row["valid_loss"]] == [15, 30]
    assert all(float(row["gradient_norm"]) > 0 for row in rows if row["loss"])


def test_the_last_two_checkpoints_and_the_best_are_kept(finished: Path):
    assert [step for step, _ in step_checkpoints(finished)] == [30, 40]
    names = {path.name for path in (finished / "checkpoints").iterdir()}
    assert names == {"step-00000030.ckpt", "step-00000040.ckpt", "best.ckpt"}


def test_the_best_checkpoint_is_that_of_the_lowest_validation_loss(finished: Path):
    losses = {int(r["step"]): float(r["valid_loss"]) for r in _metrics(finished) if r["valid_loss"]}
    best = torch.load(finished / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["global_step"] == min(losses, key=losses.__getitem__)


def test_hypotheses_are_plain_text_a_line_for_each_source(finished: Path, folder: Path):
    for split in ("valid", "test"):
        sources = (folder / f"{split}.en").read_text().splitlines()
        hypotheses = (finished / f"{split}.hypotheses.txt").read_text(encoding="utf-8")
        assert hypotheses.endswith("\n")
        assert hypotheses.count("\n") == len(sources)


def test_the_vocabulary_is_the_one_it_was_trained_with(finished: Path, folder: Path):
    corpus = prepare(tiny_experiment(folder).config)
    assert (finished / "vocabulary.model").read_bytes() == corpus.vocabulary_file.read_bytes()


def test_a_checkpoint_is_one_that_anybody_can_load(finished: Path, folder: Path):
    module = TransformerModule(tiny_experiment(folder).config)
    module.load_state_dict(last_checkpoint(finished)["state_dict"])


def test_progress_says_that_it_is_done(finished: Path):
    progress = read_progress(finished)
    assert progress is not None and progress.stage == "done"


def test_nothing_half_written_is_left(finished: Path):
    left = [p.name for p in finished.rglob("*") if p.suffix == ".part" or ".json." in p.name]
    assert not left
