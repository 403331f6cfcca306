"""The experiments of Table 4."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.catalog.find import find_experiment
from tests.samples import write_wsj
from transformer.config import TrainingConfig, differences, to_dict
from transformer.errors import InputError


def test_a_penn_treebank_is_parsed_as_in_the_paper(tmp_path: Path) -> None:
    experiment = find_experiment(f"treebank:{write_wsj(tmp_path / 'wsj').parent}")
    model, decoding = experiment.config.model, experiment.config.decoding
    assert (model.vocab_size, model.num_layers, model.d_model) == (16_000, 4, 1024)
    assert (model.d_ff, model.num_heads, model.d_k, model.d_v) == (2048, 8, 128, 128)
    assert (decoding.beam_size, decoding.length_penalty) == (21, 0.3)
    assert decoding.max_extra_length == 300
    changed = differences(to_dict(TrainingConfig()), to_dict(experiment.config.training))
    assert [line.partition(":")[0] for line in changed] == ["average_checkpoints"]
    assert experiment.config.data.tokens_per_batch == 25_000


@pytest.mark.parametrize("name", ["craft", "craft_short"])
def test_no_parse_is_dropped_for_lengths_that_only_translations_have_alike(name: str) -> None:
    config = find_experiment(name).config
    assert config.data.corpus.task == "parsing"
    assert config.data.max_length_ratio is None
    assert not config.data.drop_duplicates


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("treebank:", "treebank: needs a folder, as in treebank:treebank_3/parsed/mrg/wsj"),
        ("treebank:nowhere", "nowhere holds no sections of the Penn Treebank"),
        ("treebnk", "did you mean 'treebank:FOLDER'"),
    ],
)
def test_other_names_are_refused(name: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        find_experiment(name)
