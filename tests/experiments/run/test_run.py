"""Files that one run leaves in its directory."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.records.outputs import read_metrics
from experiments.records.progress import read_progress
from experiments.records.result import load_result
from tests.experiments.samples import last_checkpoint, tiny_experiment
from transformer.data.module import TranslationDataModule
from transformer.data.prepare.prepare import prepare
from transformer.evaluation.counts import count_parameters, training_flops
from transformer.training.module import TransformerModule


def test_the_result_has_every_field_and_its_figures_agree(finished: Path, folder: Path):
    values = json.loads((finished / "result.json").read_text())
    assert (values["experiment"], values["seed"]) == ("numbers", 3)
    assert values["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp")
    assert {"python", "torch", "lightning", "sentencepiece", "sacrebleu"} <= {*values["versions"]}
    assert values["finished_at"].endswith("+00:00")
    unknown = {name for name, value in values.items() if value is None}
    # Not configured; a CPU has no nominal peak; it translates.
    assert unknown == {"averaged", "flops_nominal", "parses", "test_parses"}
    config, result = tiny_experiment(folder).config, load_result(finished)
    assert result is not None
    assert (result.steps, result.averaged_checkpoints) == (40, 2)
    assert result.parameters == count_parameters(config.model)
    assert result.parameters_paper_vocab == count_parameters(config.model, 40_960)
    assert result.flops == training_flops(config.model, result.source_tokens, result.target_tokens)
    assert result.tokens_per_second == result.target_tokens / result.train_seconds
    assert result.bleu is not None and 0 <= result.bleu <= 100
    assert result.perplexity > 1 and result.perplexity_per_char > 1
    data = TranslationDataModule(config)
    plan, lengths = data.train_plan(), data.corpus.store("train").lengths
    pairs = [pair for step in range(40) for pair in plan.batch(step)]
    assert (result.source_tokens, result.target_tokens) == tuple(lengths[pairs].sum(0).tolist())
    assert result.corpus_target_tokens == sum(target for _, target in lengths.tolist())


def test_metrics_checkpoints_vocabulary_and_progress_are_left_and_nothing_half_written(
    finished: Path, folder: Path
):
    lines = read_metrics(finished)
    assert [int(line[0]) for line in lines if line[1]] == list(range(1, 41))
    assert [int(line[0]) for line in lines if line[-1]] == [15, 30]
    assert all(float(line[4]) > 0 for line in lines if line[1])
    names = [path.name for path in sorted((finished / "checkpoints").iterdir())]
    assert names == ["step-00000030.ckpt", "step-00000040.ckpt"]  # as many as are averaged
    config = tiny_experiment(folder).config
    TransformerModule(config).load_state_dict(last_checkpoint(finished)["state_dict"])
    vocabulary = prepare(config).vocabulary_file
    assert (finished / "vocabulary.model").read_bytes() == vocabulary.read_bytes()
    progress = read_progress(finished)
    assert progress is not None and progress.stage == "done"
    assert not [p for p in finished.rglob("*") if p.suffix == ".part" or ".json." in p.name]
