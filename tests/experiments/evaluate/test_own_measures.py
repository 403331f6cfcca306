"""Functions of the user score translations, of a run as it ends and of finished ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from experiments.evaluate.own_measures import own_scores, score_finished
from experiments.evaluate.translator import Text
from experiments.records.checksums import verify_files
from experiments.records.experiment import load_experiment
from experiments.records.result import load_result, score_key
from experiments.run import run
from tests.experiments.samples import tiny_experiment
from transformer.data.prepare.prepare import prepare
from transformer.errors import InputError
from transformer.variant import variant_name

OWN = """
def letters(sources, hypotheses, references):
    assert len(sources) == len(hypotheses) == len(references)
    return len(sources) + sum(map(len, hypotheses)) / sum(map(len, references))


def broken(sources, hypotheses, references):
    return 1 / (len(sources) - 13)


def endless(sources, hypotheses, references):
    return float("inf")


def leaves(sources, hypotheses, references):
    raise SystemExit(3)


def stopped(sources, hypotheses, references):
    raise SystemExit(75)  # as a signal does


NUMBER = 1.0
"""
TEXT = Text(["one two"], ["eins zwei"])


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return file


@pytest.mark.slow
def test_a_run_has_the_score_of_its_translations_and_a_function_that_fails_costs_nothing_else(
    own: Path, folder: Path, finished: Path, tmp_path: Path
) -> None:
    names = [variant_name(f"{own}:{name}") for name in ("letters", "broken")]
    experiment = tiny_experiment(folder)
    experiment = dataclasses.replace(experiment, own_measures=tuple(names))
    with pytest.warns(UserWarning, match="^no score by broken, which failed: ZeroDivisionError: d"):
        result = run(experiment, tmp_path / "run", log="none")
    assert result is not None and load_experiment(tmp_path / "run") == experiment
    _, references = prepare(experiment.config).text("valid")
    kept = (tmp_path / "run/valid.hypotheses.txt").read_text("utf-8").splitlines()
    expected = 13 + sum(map(len, kept)) / sum(map(len, references))
    assert result.own_scores == {score_key(names[0]): expected}
    plain = load_result(finished)
    assert plain is not None and plain.own_scores == {}
    assert (result.bleu, result.chrf) == (plain.bleu, plain.chrf)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("endless", "ValueError: it gives inf"),
        ("leaves", "SystemExit: 3"),
        ("NUMBER", "InputError: NUMBER in .* is not a function"),
    ],
)
def test_what_gives_no_score_is_said(name: str, reason: str, own: Path) -> None:
    functions = [variant_name(f"{own}:{each}") for each in (name, "letters")]
    with pytest.warns(UserWarning, match=f"^no score by {name}, which failed: {reason}"):
        found = own_scores(functions, TEXT, ["eins drei"])
    assert found == {score_key(functions[1]): 2.0}


def test_a_signal_stops_the_run_although_a_function_is_at_work(own: Path) -> None:
    with pytest.raises(SystemExit):
        own_scores([variant_name(f"{own}:stopped")], TEXT, ["eins"])


def test_a_function_that_was_edited_since_has_another_name_and_scores_nothing(own: Path) -> None:
    before = variant_name(f"{own}:letters")
    own.write_text(OWN.replace("len(sources) +", "2 * len(sources) +"))
    assert score_key(variant_name(f"{own}:letters")) != score_key(before)
    with pytest.warns(UserWarning, match="letters in .* has changed since: run the table again"):
        assert own_scores([before], TEXT, ["eins drei"]) == {}
    own.write_text(OWN + "UNUSED = 2")
    assert variant_name(f"{own}:letters") == before


def test_a_finished_run_is_scored_from_its_translations(own: Path, copy: Path) -> None:
    functions = [variant_name(f"{own}:{name}") for name in ("letters", "endless")]
    before = load_result(copy)
    assert before is not None
    with pytest.warns(UserWarning, match="no score by endless"):
        assert score_finished(copy, functions) == functions[:1]
    after = load_result(copy)
    assert after is not None and list(after.own_scores) == [score_key(functions[0])]
    assert dataclasses.replace(after, own_scores={}) == before
    assert not [problem for _, problem in verify_files(copy) if problem]
    (copy / "valid.hypotheses.txt").write_text("one\n")
    with pytest.raises(InputError, match=r"valid\.hypotheses.txt changed since the run finished"):
        score_finished(copy, functions)
