"""Experiments of the paper's tables, of folders and of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.catalog.find import find_experiment
from experiments.catalog.small import recipe
from tests.samples import write_wsj
from tests.test_readme import snippet
from transformer.config import TrainingConfig, differences, to_dict
from transformer.data.corpora.declared import WMT14_EN_DE
from transformer.errors import InputError

# vocabulary, d_model, d_ff, h, dropout, steps, averaged checkpoints
BASE = (512, 2048, 8, 0.1, 100_000, 5)
BIG = (1024, 4096, 16, 0.3, 300_000, 20)
TABLE_2 = {
    "wmt14_en_de_base": ("wmt14_en_de", 37_000, *BASE),
    "wmt14_en_de_big": ("wmt14_en_de", 37_000, *BIG),
    "wmt14_en_fr_base": ("wmt14_en_fr", 32_000, *BASE),
    "wmt14_en_fr_big": ("wmt14_en_fr", 32_000, 1024, 4096, 16, 0.1, 300_000, 20),
}


@pytest.mark.parametrize("name", TABLE_2)
def test_table_2_is_trained_as_in_the_paper(name: str):
    config = find_experiment(name).config
    model, training, decoding = config.model, config.training, config.decoding
    assert TABLE_2[name] == (
        config.data.corpus.name,
        model.vocab_size,
        model.d_model,
        model.d_ff,
        model.num_heads,
        model.dropout,
        training.max_steps,
        training.average_checkpoints,
    )
    assert (model.num_layers, model.d_k, model.d_v, model.positions) == (6, 64, 64, "sinusoidal")
    assert config.data.tokens_per_batch == 25_000
    assert (decoding.beam_size, decoding.length_penalty, decoding.max_extra_length) == (4, 0.6, 50)
    # Nothing else of training than what the sections name.
    named = {"max_steps", "average_checkpoints", "checkpoint_every_steps"}
    changed = differences(to_dict(TrainingConfig()), to_dict(training))
    assert {line.partition(":")[0] for line in changed} <= named
    assert (training.warmup_steps, training.schedule, training.label_smoothing) == (
        4_000,
        "inverse_sqrt",
        0.1,
    )
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert training.clip_norm is None


@pytest.mark.parametrize(
    ("name", "seconds_per_step", "reported"),
    [("wmt14_en_de_base", 0.4, "3.3e+18"), ("wmt14_en_de_big", 1.0, "2.3e+19")],
)
def test_its_steps_on_eight_p100_cost_the_flops_of_table_2(
    name: str, seconds_per_step: float, reported: str
):
    """With the step times of section 5.2, which it rounds to 12 hours and 3.5 days."""
    training = find_experiment(name).config.training
    assert training.checkpoint_every_steps * seconds_per_step == 600, "every ten minutes"
    seconds = training.max_steps * seconds_per_step
    assert 8 * seconds * 9.5e12 == pytest.approx(float(reported), rel=0.09)


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


# The dozen lines of the README.
CORPUS = snippet("sacrebleu_set")
EXPERIMENT = (
    CORPUS
    + """
from experiments.records.experiment import Experiment
from transformer import Config, DataConfig, ModelConfig

EXPERIMENT = Experiment(
    name="deep",
    description="deep and narrow",
    config=Config(model=ModelConfig(num_layers=11), data=DataConfig(corpus=CORPUS)),
)
"""
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_corpus.py"
    path.write_text(CORPUS)
    return path


def test_a_corpus_is_trained_like_multi30k(file: Path) -> None:
    found = find_experiment(str(file), seed=5)
    corpus = found.config.data.corpus
    assert (found.name, found.config.training.seed) == ("europarl_en_de", 5)
    assert found.config.model == recipe(corpus).model
    first, second = corpus.train
    europarl = WMT14_EN_DE.train[0]
    assert (first.source.location, first.source.sha256) == (
        europarl.source.location, europarl.source.sha256,
    )  # fmt: skip
    assert [first.source.member, first.target.member] == [
        europarl.source.member, europarl.target.member,
    ]  # fmt: skip
    assert [second.source.location, second.target.location] == [
        str(file.with_name("mine.en")), str(file.with_name("mine.de.gz")),
    ]  # fmt: skip
    assert corpus.valid == WMT14_EN_DE.valid


def test_an_experiment_keeps_its_configuration(file: Path) -> None:
    file.write_text(EXPERIMENT)
    found = find_experiment(str(file))
    assert (found.name, found.config.model.num_layers, found.config.model.d_model) == (
        "deep", 11, 512,
    )  # fmt: skip
    assert found.config.data.corpus.train[1].source.location == str(file.with_name("mine.en"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("x = 1", ": no CORPUS = Corpus(…) and no EXPERIMENT = Experiment(…) in it"),
        ("CORPUS = 'multi30k'", ": no CORPUS = Corpus(…) and no EXPERIMENT"),
        ("\nimport none_such", ", line 2: ModuleNotFoundError: No module named 'none_such'"),
        ("def f(", ": SyntaxError: '(' was never closed (my_corpus.py, line 1)"),
        ("raise OSError('two\\nlines')", ", line 1: OSError: two lines"),
        (
            "\n\nfrom transformer import TextFile\nTextFile(location='https://a')",
            ", line 4: https://a is a download and needs its sha256",
        ),
        (
            "from transformer import TextFile\nTextFile(location='ftp://a')",
            ", line 2: ftp://a is no https:// address",
        ),
        (CORPUS.replace("europarl_en_de", "a/b"), "corpus name 'a/b' becomes a folder name"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(content: str, said: str, file: Path) -> None:
    file.write_text(content)
    with pytest.raises(InputError) as error:
        find_experiment(str(file))
    told = str(error.value)
    assert told.startswith(str(file)) and said in told and "\n" not in told
