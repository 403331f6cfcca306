"""A parser from training to trees: its scores, and the commands parse and evaluate."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from experiments.evaluate.parsing import score_parses
from experiments.evaluate.trained import parse_stream
from experiments.records.experiment import Experiment
from experiments.records.result import Result, score_lines
from tests.experiments.conftest import Command
from tests.experiments.samples import result_of
from tests.samples import tiny, write_wsj
from transformer.data.corpora.treebanks import penn_treebank
from transformer.data.trees import read_trees, words
from transformer.errors import InputError

SENTENCES = ["The cat sleeps .", "It eats fish ."]
TREES = ["(S (NP XX XX )NP (VP XX )VP . )S", "(S (NP XX )NP (VP XX (NP XX )NP )VP . )S"]


def test_perfect_lines_score_100_and_the_baseline_less() -> None:
    found = score_parses(SENTENCES, TREES, TREES)
    assert (found.f1, found.exact_match, found.sentences) == (100, 100, 2)
    assert 0 < found.baseline_f1 < 60
    spelt = [
        "(S (NP The cat )NP (VP sleeps )VP . )S",
        "(S (NP It )NP (VP eats (NP fish )NP )VP . )S",
    ]
    assert score_parses(SENTENCES, spelt, spelt) == found


@pytest.fixture(scope="module")
def parser(shared_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A parser of two kinds of sentences, trained for some seconds."""
    folder = tmp_path_factory.mktemp("treebank")
    corpus = penn_treebank(write_wsj(folder / "wsj"))
    config = tiny(corpus, vocab_size=45, max_steps=240, warmup_steps=60, learning_rate_factor=1.0)
    experiment = Experiment(name="parser", description="a tiny parser", config=config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "disabled")
        patch.setenv("DATA_CACHE", str(shared_cache))
        return folder / "run", result_of(experiment, folder / "run")


def test_a_trained_parser_has_its_scores_in_the_result(parser: tuple[Path, Result]) -> None:
    _, result = parser
    assert result.parses is not None and result.test_parses is not None
    assert (result.parses.sentences, result.parses.errors) == (4, 0)
    assert result.f1 == result.parses.f1 > result.parses.baseline_f1
    assert (result.bleu, result.tokenised_bleu, result.bleu_signature) == (None, None, None)
    valid, test = score_lines(result)
    assert valid.startswith(f"valid  F1 {result.f1:.2f} (precision ")
    assert test.startswith("test   F1 ")


def test_parse_prints_a_tree_over_each_sentence(
    parser: tuple[Path, Result], command: Command
) -> None:
    directory, _ = parser
    text = "w2 f1\na b ( c ) .\n\n"
    ended = command("experiments", "parse", directory, stdin=text.encode())
    trees = [next(read_trees(line, "output")) for line in ended.stdout.splitlines()[:2]]
    assert [words(tree) for tree in trees] == [["w2", "f1"], ["a", "b", "-LRB-", "c", "-RRB-", "."]]
    assert ended.stdout.splitlines()[2] == "(TOP)"


def test_evaluate_prints_f1(parser: tuple[Path, Result], command: Command) -> None:
    directory, result = parser
    ended = command("experiments", "evaluate", directory, "--split", "test")
    assert result.test_f1 is not None
    assert ended.stdout.startswith(f"F1 {result.test_f1:.2f} (precision ")
    assert "BLEU" not in ended.stdout


def test_a_translator_does_not_parse(finished: Path) -> None:
    with pytest.raises(InputError, match="does not parse, it translates: use translate"):
        next(parse_stream(finished, io.BytesIO(b"A sentence .\n")))


def test_a_parser_is_not_decoded_by_an_engine_without_constraints(
    parser: tuple[Path, Result], command: Command
) -> None:
    ended = command("experiments", "parse", parser[0], "--engine", "ctranslate2", stdin=b"a\n")
    assert ended.code == 2
    assert "CTranslate2 cannot be held to trees: parse with --engine torch" in ended.stderr
