"""Exports for Hugging Face transformers: its logits, word-pieces and translations are ours."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from experiments.evaluate.trained import TrainedModel, TrainedParser
from experiments.export.marian import compare_with_transformers, write_marian_model
from experiments.records.experiment import Experiment
from experiments.records.ownership import claim
from experiments.records.result import Averaged, load_result, save_result
from experiments.run import run
from tests.experiments.conftest import Command
from tests.experiments.export.test_export import ROWS, lively_model, some_lines
from tests.experiments.samples import tiny_experiment
from tests.samples import TINY_MODEL, all_but_first_slow, random_sentences, random_targets, tiny
from transformer.config import BOS_ID, PAD_ID, ModelConfig, Positions, override
from transformer.data.corpora.folders import folder_corpus
from transformer.data.vocabulary import Vocabulary
from transformer.errors import InputError
from transformer.model.encoder_decoder import Transformer

MARIAN = dataclasses.replace(TINY_MODEL, d_model=26, num_heads=2, d_k=5, d_v=7)


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("transformers")


def trained(model: ModelConfig, folder: Path, vocabulary: Vocabulary, **search: float) -> Any:
    config = override(tiny(folder_corpus(folder)), max_extra_length=7, **search)
    config = dataclasses.replace(config, model=model)
    experiment = Experiment(name="numbers", description="digits", config=config)
    return TrainedModel(experiment, vocabulary, lively_model(model))


def write(model: TrainedModel, folder: Path) -> None:
    processor: Any = model.vocabulary._model
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(processor.serialized_model_proto())
    write_marian_model(model, folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", all_but_first_slow(ROWS))
def test_each_row_of_table_3_has_our_logits(
    name: str, transformers: Any, folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """Of padded sentences too, and behind the last learned position."""
    config = dataclasses.replace(ROWS[name], vocab_size=61, max_positions=11)
    ours = trained(config, folder, vocabulary)
    write(ours, tmp_path)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(str(tmp_path)).eval().double()
    src, tgt = random_sentences([17, 5, 2]), random_targets([13, 7, 3])
    with torch.inference_mode():
        expected = ours.model.double()(src, tgt)
        expected[..., [PAD_ID, BOS_ID]] -= 10_000
        mask = src.ne(PAD_ID).long()
        found = theirs(input_ids=src, attention_mask=mask, decoder_input_ids=tgt).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("positions", get_args(Positions))
def test_the_same_word_pieces_and_translations_as_ours(
    positions: Positions, transformers: Any, folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    model = trained(dataclasses.replace(MARIAN, positions=positions), folder, vocabulary)
    write(model, tmp_path)
    lengths = [1, 2, *torch.randint(2, 25, (101,)).tolist()]
    lines = ["", *some_lines(vocabulary, lengths)]
    found, compared = compare_with_transformers(model, tmp_path, lines)
    assert compared == 103
    assert found == {"word-pieces": 103, "greedy search": 103, "beam 4": 103}


def test_other_weights_translate_otherwise(
    transformers: Any, folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    model = trained(MARIAN, folder, vocabulary, beam_size=1)
    write(model, tmp_path)
    other = dataclasses.replace(model, model=lively_model(MARIAN, end=-3.0))
    found, compared = compare_with_transformers(other, tmp_path, some_lines(vocabulary, [5, 7, 11]))
    assert (found["word-pieces"], compared) == (3, 3) and found["greedy search"] < 3


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_heads": 3}, "3 do not divide 26"),
        ({"d_k": 17}, "13 wide, which is less than d_k 17"),
        ({"d_v": 17}, "13 wide, which is less than d_k 5 or d_v 17"),
    ],
)
def test_heads_that_marian_cannot_have_are_refused_by_name(
    changes: dict[str, int], problem: str, folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    model = trained(dataclasses.replace(MARIAN, **changes), folder, vocabulary)
    with pytest.raises(InputError, match=problem):
        write_marian_model(model, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_variants_and_parsers_are_refused_by_name(
    folder: Path, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    class Other(Transformer):
        """A variant."""

    model = trained(MARIAN, folder, vocabulary)
    with pytest.raises(InputError, match="Marian has no Other: use --format safetensors"):
        write_marian_model(dataclasses.replace(model, model=Other(MARIAN)), tmp_path)
    corpus = dataclasses.replace(folder_corpus(folder), task="parsing", target_language="trees")
    config = override(model.experiment.config, corpus=corpus)
    experiment = dataclasses.replace(model.experiment, config=config)
    parser = TrainedParser(experiment, vocabulary, model.model)
    with pytest.raises(InputError, match="a parser writes trees only"):
        write_marian_model(parser, tmp_path)


@pytest.fixture(scope="module")
def row(folder: Path, shared_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that Marian can express, as seed 3 of a table's row with seeds 3 and 5."""
    row = tmp_path_factory.mktemp("table") / "wide"
    experiment = tiny_experiment(folder, num_heads=2)
    labels = {"table": "mine", "scale": "quick", "row": "wide"}
    run(dataclasses.replace(experiment, labels=labels), row / "seed-3")
    result = load_result(row / "seed-3")
    assert result is not None
    of_row = {"seed-5": {"seed": 5}, "seed-7": {"seed": 7, "dropout": 0.2}}  # which is stale
    for name, changes in of_row.items():
        (row / name).mkdir()
        config = override(experiment.config, **changes)
        claim(row / name, dataclasses.replace(experiment, config=config))
        found = dataclasses.replace(result, seed=int(changes["seed"]), perplexity=31.0)
        save_result(row / name, found)
    save_result(row / "seed-3", dataclasses.replace(result, perplexity=29.0, bleu=17.25))
    return row / "seed-3"


@pytest.mark.slow
def test_an_export_has_the_files_a_card_and_our_output(
    row: Path, transformers: Any, call: Command, tmp_path: Path
) -> None:
    words = ("export", row, "--format", "hf", "--output", tmp_path / "hf")
    assert call(*words).code == 0
    ended = call(*words, "--check", "13")  # it replaces the earlier one
    assert ended.code == 0, ended
    kinds = ("word-pieces", "greedy search", "beam 4")
    assert ended.stdout.splitlines()[1:] == [
        f"13 of 13 lines are the same in transformers: {x}" for x in kinds
    ]
    assert sorted(path.name for path in (tmp_path / "hf").iterdir()) == [
        *("README.md", "config.json", "experiment.json", "export.json", "generation_config.json"),
        *("model.safetensors", "source.spm", "target.spm", "tokenizer_config.json", "vocab.json"),
    ]
    assert call("verify", tmp_path / "hf").code == 0
    (line,) = call("evaluate", tmp_path / "hf").lines
    assert line.endswith("is an export for transformers: give the run")
    search = json.loads((tmp_path / "hf/generation_config.json").read_text())
    assert (search["num_beams"], search["length_penalty"]) == (4, 0.6)


def test_the_card_says_what_the_records_know(row: Path, call: Command, tmp_path: Path) -> None:
    assert call("export", row, "--format", "hf", "--output", tmp_path / "hf").code == 0
    card = (tmp_path / "hf/README.md").read_text()
    assert card.startswith('---\nlanguage: ["en", "de"]\n')
    # 30 with t(0.975) of one degree of freedom, 12.706, times a standard error of 1.
    assert "| Perplexity of the validation set | 29.000 | 30.000 (17.294 to 42.706) |" in card
    assert "| BLEU of the validation set | 17.2 |" in card
    assert "`python -m ablations run mine --scale quick --rows wide --seeds 3`" in card
    assert "BLEU: `nrefs:1|case:mixed|" in card
    assert "- row: wide" in card and "Its licence: the user's own" in card
    shipped = json.loads((tmp_path / "hf/experiment.json").read_text())
    assert str(row.parent) not in card and shipped["name"] == "numbers"
    assert shipped["config"]["data"]["corpus"]["train"][0]["source"]["location"] == "train.en"
    assert call("export", row, "--format", "hf", "--average", "1").code == 0
    assert "These weights have not been scored." in (row / "hf/README.md").read_text()


def test_the_card_compares_averaged_weights_with_averaged_weights(row: Path, call: Command) -> None:
    for path in (row, row.with_name("seed-5")):
        made = load_result(path)
        assert made is not None and made.averaged_checkpoints == 2
        alone = made.perplexity + 10
        mean = Averaged(checkpoints=2, perplexity=made.perplexity, perplexity_per_char=2.0)
        changes = {"averaged": mean, "averaged_checkpoints": 1, "perplexity": alone}
        save_result(path, dataclasses.replace(made, **changes))
    words = ("export", row, "--format", "hf")
    assert call(*words, "--average", "2").code == 0
    line = "| Perplexity of the validation set | 29.000 | 30.000 (17.294 to 42.706) |"
    assert line in (row / "hf/README.md").read_text()
    assert call(*words, "--average", "1").code == 0
    line = "| Perplexity of the validation set | 39.000 | 40.000 (27.294 to 52.706) |"
    assert line in (row / "hf/README.md").read_text()


def test_a_check_without_transformers_says_how_to_install_it(
    row: Path, call: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    words = ("export", row, "--format", "hf", "--output", tmp_path / "hf")
    assert call(*words).code == 0
    ended = call(*words, "--check", "1")
    assert ended.code == 2 and "transformers is not installed: pip install '.[hf]'" in ended.stderr
