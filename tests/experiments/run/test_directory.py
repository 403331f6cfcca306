"""A directory holds one run, belongs to one configuration, and to one process at a time."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import experiments.evaluate.scoring
import experiments.records.ownership
import experiments.run
from experiments.callbacks.checkpoints import Checkpoints
from experiments.callbacks.metrics import LogMetrics
from experiments.catalog.find import EXPERIMENTS
from experiments.evaluate.trained import text_of_split
from experiments.records.checksums import verify_files
from experiments.records.data import recorded_data
from experiments.records.experiment import Experiment, Limits, load_experiment
from experiments.records.outputs import read_metrics
from experiments.records.ownership import lock_directory
from experiments.records.progress import read_progress
from experiments.records.result import load_result
from experiments.records.run import read_run
from experiments.run import execute, run
from tests.experiments.samples import last_checkpoint, tiny_experiment
from tests.samples import flip_a_bit, new_run
from transformer.config import override
from transformer.data.module import TranslationDataModule
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters, training_flops
from transformer.files import locked, read_json
from transformer.imported_files import has_changed_since
from transformer.training.module import TransformerModule
from transformer.variant import FILES_VARIABLE, variant_name


def test_the_result_has_every_field_and_its_figures_agree(finished: Path, experiment: Experiment):
    values = json.loads((finished / "result.json").read_text())
    assert (values["experiment"], values["seed"]) == ("numbers", 3)
    assert values["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp")
    assert {"python", "torch", "lightning", "sentencepiece", "sacrebleu"} <= {*values["versions"]}
    assert values["finished_at"].endswith("+00:00")
    unknown = {name for name, value in values.items() if value is None}
    # Not configured; a CPU has no nominal peak; it translates; training came to its end.
    assert unknown == {"averaged", "flops_nominal", "parses", "test_parses", "diverged_at"}
    config, result = experiment.config, load_result(finished)
    assert result is not None
    assert (result.steps, result.averaged_checkpoints) == (40, 2)
    assert result.parameters == count_parameters(config.model)
    assert result.parameters_paper_vocab == count_parameters(config.model, 40_960)
    assert result.flops == training_flops(config.model, result.source_tokens, result.target_tokens)
    assert result.tokens_per_second == result.target_tokens / result.train_seconds
    assert result.sentences_per_second is not None and result.sentences_per_second > 0
    assert result.bleu is not None and 0 <= result.bleu <= 100
    assert result.perplexity > 1 and result.perplexity_per_char > 1
    data, recorded = TranslationDataModule(config), recorded_data(finished)
    assert recorded is not None
    assert result.data_digest == recorded.digest == data.corpus.manifest.digest
    plan, lengths = data.train_plan(), data.corpus.store("train").lengths
    pairs = [pair for step in range(40) for pair in plan.batch(step)]
    assert (result.source_tokens, result.target_tokens) == tuple(lengths[pairs].sum(0).tolist())
    assert result.corpus_target_tokens == sum(target for _, target in lengths.tolist())


def test_metrics_checkpoints_vocabulary_and_progress_are_left_and_nothing_half_written(
    finished: Path, experiment: Experiment
):
    lines = read_metrics(finished)
    assert [int(line[0]) for line in lines if line[1]] == list(range(1, 41))
    assert [int(line[0]) for line in lines if line[-1]] == [15, 30]
    assert all(float(line[4]) > 0 for line in lines if line[1])
    speeds = read_run(finished).speeds
    assert list(speeds) == list(range(1, 41)) and min(speeds.values()) > 0
    names = [path.name for path in sorted((finished / "checkpoints").iterdir())]
    assert names == ["step-00000030.ckpt", "step-00000040.ckpt"]  # as many as are averaged
    TransformerModule(experiment.config).load_state_dict(last_checkpoint(finished)["state_dict"])
    vocabulary = TranslationDataModule(experiment.config).corpus.vocabulary_file
    assert (finished / "vocabulary.model").read_bytes() == vocabulary.read_bytes()
    progress = read_progress(finished)
    assert progress is not None and progress.stage == "done"
    assert not [p for p in finished.rglob("*") if p.suffix == ".part" or ".json." in p.name]


def test_another_configuration_is_refused_with_the_differences(
    finished: Path, folder: Path, experiment: Experiment
):
    with pytest.raises(InputError, match=f"{finished} belongs to another configuration") as caught:
        run(tiny_experiment(folder, seed=4, d_ff=19), finished)
    message = str(caught.value)
    assert "model.d_ff: 17 -> 19" in message and "training.seed: 3 -> 4" in message
    assert "dropout" not in message
    assert load_experiment(finished) == experiment
    with pytest.raises(InputError) as caught:
        run(EXPERIMENTS["cldr"], finished)
    message = str(caught.value)
    assert "data.corpus.name: 'numbers' -> 'cldr_en_de'" in message
    assert message.count("data.corpus") == 1  # the name says it all
    assert "model.d_ff: 17 -> 256" in message


def test_a_variant_that_is_refused_claims_no_directory(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(FILES_VARIABLE, "")
    own = tmp_path / "own.py"
    own.write_text(
        "from transformer import Transformer\n\n\n"
        "class Own(Transformer):\n    def training_step(self): pass\n"
    )
    config = override(experiment.config, model=variant_name(f"{own}:Own"))
    with pytest.raises(InputError, match="has training_step, which is not called"):
        run(dataclasses.replace(experiment, config=config), tmp_path / "run")
    assert not (tmp_path / "run").exists()


LATE = """
from transformer import Transformer


class Own(Transformer):
    def __init__(self, config):
        super().__init__(config)
        import built

    def encode(self, src, src_mask):
        import trained
        return super().encode(src, src_mask)
"""


@pytest.mark.slow
def test_a_run_keeps_what_it_imported_until_its_end_as_it_was_in_the_first_attempt(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(FILES_VARIABLE, "")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "lib")])
    (tmp_path / "own.py").write_text(LATE)
    (tmp_path / "lib").mkdir()
    built, trained = (tmp_path / f"lib/{x}.py" for x in ("built", "trained"))
    built.write_text("WIDTH = 1\n")
    trained.write_text("RATE = 1.0\n")
    experiment = tiny_experiment(folder, model=variant_name(f"{tmp_path / 'own.py'}:Own"))
    directory = tmp_path / "run"
    run(experiment, directory, limits=Limits(max_steps=1), log="none")
    kept = {"own.py": LATE, "lib/built.py": "WIDTH = 1\n", "lib/trained.py": "RATE = 1.0\n"}
    assert kept.items() <= read_json(directory / "source.json")["files"]["own"].items()
    assert not has_changed_since(read_json(directory / "source.json"))
    built.write_text("WIDTH = 2\n")
    result = run(experiment, directory, limits=Limits(max_steps=2), log="none")
    assert result is not None and result.steps == 2
    assert kept.items() <= read_json(directory / "source.json")["files"]["own"].items()
    assert has_changed_since(read_json(directory / "source.json"))
    assert [problem for _, problem in verify_files(directory) if problem] == []
    for name in ("built", "trained"):
        del sys.modules[name]


def test_a_finished_run_records_where_its_text_lies_now(
    copy: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    moved = shutil.copytree(folder, tmp_path / "moved" / folder.name)
    there = tiny_experiment(moved)
    flip_a_bit(copy / "metrics.csv")
    with pytest.raises(InputError, match=r"metrics\.csv changed since the run finished"):
        run(there, copy)
    assert load_experiment(copy) == tiny_experiment(folder)
    flip_a_bit(copy / "metrics.csv")
    run(there, copy)
    assert load_experiment(copy) == there
    assert [problem for _, problem in verify_files(copy) if problem] == []
    monkeypatch.setenv("DATA_CACHE", str(tmp_path / "empty"))  # so that the text is read
    assert len(text_of_split(load_experiment(copy), "test", recorded_data(copy)).sources) == 11


@pytest.mark.parametrize("below", ["base/seed-1", "trial-0003"])
def test_the_directory_of_a_table_is_refused_and_a_run_in_it_is_named(
    below: str, experiment: Experiment, tmp_path: Path
):
    new_run(tmp_path / below, experiment)
    with pytest.raises(InputError, match=f"no config.json; one below it is {tmp_path / below}$"):
        load_experiment(tmp_path)


def test_a_directory_in_use_is_refused(
    copy: Path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(experiments.records.ownership, "_LOCK_SECONDS", 0)
    message = f"{copy} is in use by another process"
    with locked(copy / ".lock"), pytest.raises(InputError, match=message):
        run(experiment, copy)


def test_a_directory_that_is_gone_is_not_locked(tmp_path: Path):
    with pytest.raises(FileNotFoundError), lock_directory(tmp_path / "seed-1.attempt-1"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("moment", "anew"),
    [
        ((LogMetrics, "_append"), False),
        ((Checkpoints, "_save_if_due"), True),
        ((experiments.run, "score_run"), True),
        ((experiments.evaluate.scoring, "_result"), True),
    ],
)
def test_a_directory_that_is_removed_ends_the_run_in_one_line(
    moment: tuple[Any, str],
    anew: bool,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    directory, original = tmp_path / "run", getattr(*moment)

    def remove_first(*arguments: Any, **settings: Any) -> Any:
        shutil.rmtree(directory, ignore_errors=True)
        if anew:  # as W&B's process does
            directory.mkdir()
        return original(*arguments, **settings)

    monkeypatch.setattr(*moment, remove_first)
    experiment = tiny_experiment(folder, max_steps=2, average_checkpoints=1)
    with pytest.raises(InputError, match=r"was removed, or emptied|has no checkpoint"):
        execute(experiment, directory)
    assert not (directory / "result.json").exists()
