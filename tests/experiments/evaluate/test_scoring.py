"""A run scores its checkpoints, and a mean of more; a parser scores trees."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from experiments.cli import PROGRAM
from experiments.evaluate.scoring import score_parses
from experiments.evaluate.trained import load_trained
from experiments.records.experiment import Experiment
from experiments.records.outputs import step_checkpoints
from experiments.records.result import Result, load_result, result_lines
from tests.experiments.conftest import Command
from tests.experiments.samples import result_of, tiny_experiment
from tests.samples import tiny, write_wsj
from transformer.data.corpora.treebanks import penn_treebank
from transformer.data.prepare.prepare import prepare
from transformer.data.trees import read_trees, words
from transformer.evaluation.perplexity import perplexity, translate

CPU = torch.device("cpu")


def test_both_means_are_scored_and_their_translations_kept(folder: Path, tmp_path: Path):
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
    assert "(mean of 3 checkpoints)" in result_lines(result)[2]


def test_the_same_checkpoints_are_not_scored_twice(folder: Path, tmp_path: Path):
    experiment = tiny_experiment(
        folder, ("valid",), also_average=5, max_steps=4, checkpoint_every_steps=2
    )
    result = result_of(experiment, tmp_path / "run")
    assert (result.averaged_checkpoints, result.averaged) == (2, None)
    assert not list((tmp_path / "run").glob("valid-averaged*"))


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
    schedule = {"max_steps": 140, "warmup_steps": 40, "learning_rate_factor": 1.0}
    config = tiny(corpus, vocab_size=45, num_layers=1, **schedule)
    experiment = Experiment(name="parser", description="a tiny parser", config=config)
    return folder / "run", result_of(experiment, folder / "run", log="none")


def test_a_trained_parser_has_its_scores_in_the_result(parser: tuple[Path, Result]) -> None:
    _, result = parser
    assert result.parses is not None and result.test_parses is not None
    assert result.parses.sentences == 4
    assert result.f1 == result.parses.f1 > result.parses.baseline_f1
    assert (result.bleu, result.tokenised_bleu, result.bleu_signature) == (None, None, None)
    _, valid, test = result_lines(result)
    assert valid.startswith(f"valid  F1 {result.f1:.2f} (precision ")
    assert test.startswith("test   F1 ")


def test_a_parser_translates_each_sentence_into_a_tree(
    parser: tuple[Path, Result], command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, _ = parser
    text = "w2 f1\na b ( c ) .\n\n" + "w2 " * 50_000 + "\n" + "w2 " * 3_000 + "\nw2 f1\n"
    ended = command("experiments", "parse", directory, stdin=text.encode())
    trees = [next(read_trees(line, "output")) for line in ended.stdout.splitlines()[:2]]
    assert [words(tree) for tree in trees] == [["w2", "f1"], ["a", "b", "-LRB-", "c", "-RRB-", "."]]
    first, _, *others = ended.stdout.splitlines()
    assert others == ["(TOP)", "", "", first]
    four, five = sorted(ended.stderr.splitlines())
    assert "line 4 has more than 65,536 bytes: left empty" in four and "line 5 has" in five
    assert PROGRAM.run(["translate", str(directory), "--engine", "ctranslate2"]) == 2
    said = capsys.readouterr().err
    assert "CTranslate2 cannot be held to trees: parse with --engine torch" in said


def test_evaluate_prints_f1(
    parser: tuple[Path, Result], capsys: pytest.CaptureFixture[str]
) -> None:
    directory, result = parser
    assert PROGRAM.run(["evaluate", str(directory), "--split", "test"]) == 0
    assert capsys.readouterr().out.startswith(f"{result_lines(result)[2]}, per character ")
