"""Differences of two systems on one text are told from chance."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import sacrebleu

from experiments.catalog.find import EXPERIMENTS
from experiments.cli import compare
from experiments.evaluate.significance import compare_lines, compare_runs
from experiments.records.outputs import hypotheses_path
from experiments.records.run import read_run
from tests.experiments.samples import result_of, tiny_experiment
from tests.samples import new_run, number_pairs, write_corpus
from transformer.errors import InputError

REFERENCES = [target for _, target in number_pairs(211, seed=5)]


def worsened(share: float, seed: int) -> list[str]:
    """The references with a share of their words lost."""
    random = Random(seed)
    return [
        " ".join(word for word in line.split() if random.random() >= share) for line in REFERENCES
    ]


GOOD, AS_GOOD, BAD = worsened(0.1, 1), worsened(0.1, 2), worsened(0.4, 3)


@pytest.mark.slow
def test_a_large_difference_is_found_in_either_order_with_the_scores_of_sacrebleu() -> None:
    forth = compare_lines(("good", GOOD), ("bad", BAD), REFERENCES)
    back = compare_lines(("bad", BAD), ("good", GOOD), REFERENCES)
    assert forth.verdict == back.verdict == "good is better than bad"
    assert forth.p_value < 0.01 and back.p_value < 0.01
    assert forth.difference == -back.difference < -10
    assert forth.second.high < forth.first.low
    for system, lines in ((forth.first, GOOD), (forth.second, BAD)):
        assert system.bleu == pytest.approx(sacrebleu.corpus_bleu(lines, [REFERENCES]).score)
        assert system.low < system.bleu < system.high
    assert forth.lines == 211
    assert forth.signature.startswith(
        "nrefs:1|bs:1000|ar:10000|seed:12345|case:mixed|eff:no|tok:13a|"
    )


@pytest.mark.slow
def test_equal_scores_and_a_difference_of_chance_are_within_noise() -> None:
    chance = compare_lines(("one", GOOD), ("other", AS_GOOD), REFERENCES)
    assert chance.difference != 0 and chance.p_value > 0.05
    same = compare_lines(("one", GOOD), ("other", GOOD), REFERENCES)
    zero = compare_lines(("one", ["a"] * 211), ("other", ["b"] * 211), REFERENCES)
    for found in (same, zero):
        assert (found.difference, found.p_value) == (0, 1)
    assert {x.verdict for x in (chance, same, zero)} == {"the difference is within noise"}


@pytest.mark.parametrize(("better", "p_value"), [(1, 1), (3, 1 / 4), (5, 1 / 16)])
def test_a_few_lines_that_differ_are_no_evidence(better: int, p_value: float) -> None:
    """Each lacks its last word; of all exchanges two have as large a difference."""
    lines = ["a b c d e f"] * 30
    cut = ["a b c d e"] * better + lines[better:]
    assert compare_lines(("cut", cut), ("whole", lines), lines).p_value == p_value


@pytest.mark.parametrize("lines", [["a b"] * 40_001, ["word " * 10_000] * 400])
def test_a_text_that_takes_too_much_memory_to_compare_is_refused(lines: list[str]) -> None:
    with pytest.raises(InputError, match=r"^the text is too large to be compared: at most 40"):
        compare_lines(("one", lines), ("other", lines), lines)


def test_lines_that_do_not_match_the_references_are_refused() -> None:
    with pytest.raises(InputError, match=r"good has 211 lines but the references 0"):
        compare_lines(("good", GOOD), ("bad", BAD), [])
    with pytest.raises(InputError, match="there are no lines to compare"):
        compare_lines(("one", []), ("other", []), [])


def test_runs_are_compared_by_their_translations(
    finished: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"test\.de is not the directory of a run"):
        compare(folder / "test.de", folder / "test.de")
    other = tmp_path / "other"
    new_run(other, tiny_experiment(folder, seed=7))
    with pytest.raises(InputError, match=r"other has no test\.hypotheses\.txt: it is not finished"):
        compare_runs(read_run(finished), read_run(other), "test")
    lines = (folder / "test.de").read_bytes()
    hypotheses_path(other, "test").write_bytes(lines)
    compare(finished, other, split="test")
    first, second, difference, _ = capsys.readouterr().out.splitlines()
    assert first.endswith(str(finished)) and second.startswith("BLEU 100.00")
    assert ", 11 lines: " in difference


def test_trees_are_not_compared_by_bleu(tmp_path: Path) -> None:
    new_run(tmp_path / "run", EXPERIMENTS["craft_short"])
    run = read_run(tmp_path / "run")
    with pytest.raises(InputError, match="run is a parser's, and BLEU is for translations"):
        compare_runs(run, run, "valid")


@pytest.mark.slow
def test_a_target_without_spaces_is_scored_and_compared_by_its_own_tokenizer(
    tmp_path: Path,
) -> None:
    run, folder = tmp_path / "run", write_corpus(tmp_path / "numbers")
    for path in folder.glob("*.de"):
        path.rename(path.with_suffix(".th"))
    result = result_of(tiny_experiment(folder, ("valid",), max_steps=2), run)
    assert "|tok:char|" in (result.bleu_signature or "")
    assert "|tok:char|" in compare_runs(read_run(run), read_run(run), "valid").signature
