"""Experiments of the paper's tables, of folders and of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablations.tables.plan_file import load_plan
from experiments.catalog.find import find_experiment
from experiments.catalog.translation import recipe
from tests.samples import write_wsj
from tests.test_readme import snippet
from transformer.config import Config, DataConfig, TrainingConfig, differences, override, to_dict
from transformer.corpus import Corpus
from transformer.data.corpora.declared import WMT14_EN_DE, WMT14_EN_FR
from transformer.errors import InputError
from transformer.variant import current

RESULTS = Path(__file__).parents[3] / "experiments" / "results"
# Differences from the defaults, which are pinned in tests/ablations/tables/test_table3.py.
BASE = {"checkpoint_every_steps": 1_500, "average_checkpoints": 5}
BIG = dict(  # noqa: C408
    d_model=1024, d_ff=4096, num_heads=16, dropout=0.3, max_steps=300_000,
    checkpoint_every_steps=600, average_checkpoints=20,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "corpus", "changes"),
    [
        ("wmt14_en_de_base", WMT14_EN_DE, BASE),
        ("wmt14_en_de_big", WMT14_EN_DE, BIG),
        ("wmt14_en_fr_base", WMT14_EN_FR, {**BASE, "vocab_size": 32_000}),
        ("wmt14_en_fr_big", WMT14_EN_FR, {**BIG, "vocab_size": 32_000, "dropout": 0.1}),
    ],
)
def test_table_2_is_trained_as_in_the_paper(name: str, corpus: Corpus, changes: dict[str, float]):
    expected = override(Config(data=DataConfig(corpus=corpus)), **changes)
    assert find_experiment(name).config == expected


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
    "pair", [("de", "en"), ("en", "zh-CN"), ("zh-CN", "en"), ("eng_Latn", "pt_br")]
)
def test_a_folder_is_named_with_its_direction(pair: tuple[str, str], tmp_path: Path) -> None:
    for name in (f"{split}.{language}" for split in ("train", "valid") for language in pair):
        (tmp_path / name).write_text("a line\n")
    corpus = find_experiment(f"files:{tmp_path}:{'-'.join(pair)}").config.data.corpus
    assert (corpus.source_language, corpus.target_language) == pair


# The dozen lines of the README.
CORPUS = snippet("sacrebleu_set")
EXPERIMENT = f"""{CORPUS}
from experiments.records.experiment import Experiment
from transformer import Config, DataConfig, ModelConfig

CONFIG = Config(model=ModelConfig(num_layers=11), data=DataConfig(corpus=CORPUS))
EXPERIMENT = Experiment(name="deep", description="deep and narrow", config=CONFIG)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "my_corpus.py"


def test_a_corpus_is_trained_like_multi30k(file: Path) -> None:
    file.write_text(CORPUS)
    found = find_experiment(str(file), seed=5)
    corpus = found.config.data.corpus
    assert (found.name, found.config.training.seed) == ("europarl_en_de", 5)
    assert found.config.model == recipe(corpus).model
    first, second = corpus.train
    assert first.target == WMT14_EN_DE.train[0].target
    assert second.source.location == str(file.with_name("mine.en"))
    assert second.target.location == str(file.with_name("mine.de.gz"))
    assert corpus.valid == WMT14_EN_DE.valid


def test_an_experiment_keeps_its_configuration(file: Path) -> None:
    file.write_text(EXPERIMENT)
    found = find_experiment(str(file))
    model = found.config.model
    assert (found.name, model.num_layers, model.d_model) == ("deep", 11, 512)
    assert found.config.data.corpus.train[1].source.location == str(file.with_name("mine.en"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("x = 1", ": no CORPUS = Corpus(…) and no EXPERIMENT = Experiment(…) in it"),
        ("\nimport none_such", ", line 2: ModuleNotFoundError: No module named 'none_such'"),
        ("def f(", ": SyntaxError: '(' was never closed (my_corpus.py, line 1)"),
        (
            "\n\nfrom transformer import TextFile\nTextFile(location='https://a')",
            ", line 4: https://a is a download and needs its sha256",
        ),
        (CORPUS.replace("europarl_en_de", "a/b"), "corpus name 'a/b' becomes a folder name"),
        (
            f"{CORPUS}\nfrom dataclasses import replace\nreplace(CORPUS, train=CORPUS.valid)",
            "the corpus europarl_en_de needs train=(ParallelText(…), …) and valid=ParallelText(…)",
        ),
        (
            CORPUS.replace('TextFile(location="mine.en")', "'mine.en'"),
            "needs train=(",
        ),
        (EXPERIMENT[:-2] + ", splits=['test'])", "splits are ['test'], but valid must be among"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(content: str, said: str, file: Path) -> None:
    file.write_text(content)
    with pytest.raises(InputError) as error:
        find_experiment(str(file))
    told = str(error.value)
    assert told.startswith(str(file)) and said in told and "\n" not in told


@pytest.mark.parametrize(("name", "row"), [("multi30k", "base"), ("multi30k_modern", "modern")])
def test_multi30k_is_the_row_with_the_committed_result(name: str, row: str) -> None:
    found = override(find_experiment(name).config, threads=1, precision="fp32")
    committed = load_plan(RESULTS / "multi30k-modern").configs[row]
    assert current(committed).without_folders == found.without_folders
