"""A corpus or an experiment in a user's Python file."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.catalog.find import find_experiment
from experiments.catalog.multi30k import recipe
from tests.experiments.conftest import Command
from tests.test_readme import snippet
from transformer.data.corpora.declared import WMT14_EN_DE
from transformer.errors import InputError

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


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(InputError, match=r"there is no corpus or experiment file none\.py"):
        find_experiment("none.py")


def test_the_command_line_takes_a_file(file: Path, command: Command) -> None:
    ended = command("experiments", "prepare", file)
    assert ended.code == 2
    assert f"{file.with_name('mine.en')} does not exist" in ended.stderr
