"""The answers to checklists are what the records say, and no others."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ablations.folder import SearchFolder, TableFolder
from ablations.report.checklist import checklist
from ablations.report.checklists import CHECKLISTS
from ablations.tables.plan import make_plan
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell
from ablations.tables.tune import Tune
from experiments.records.result import save_result
from tests.ablations.report.samples import SIGNS
from tests.ablations.samples import TINY, result

RESULTS = Path(__file__).parents[3] / "experiments/results"


def section(text: str, number: str, asks: str) -> list[str]:
    """The lines below the first item of this number whose words begin so."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"- **{number}** {asks}"))
    below = lines[start + 1 :]
    end = next((i for i, line in enumerate(below) if not line.startswith("    ")), len(below))
    return [line.removeprefix("    - ") for line in below[:end]]


@pytest.fixture(scope="module")
def table() -> str:
    return checklist(TableFolder(RESULTS / "noise-small"))


@pytest.fixture(scope="module")
def search() -> str:
    return checklist(SearchFolder(RESULTS / "search-base_lr-small"))


def test_a_table_answers_data_compute_and_spread(table: str) -> None:
    assert section(table, "B2", "licence") == [
        "multi30k_en_de: CC BY-NC-SA 4.0 (captions); research use"
    ]
    assert section(table, "B6", "statistics") == [
        "multi30k_en_de: pairs: train 29,000, valid 1,014, test 1,000"
    ]
    parameters, compute, device, _ = section(table, "C1", "parameters")
    assert parameters.startswith("parameters: base 0.476 M, beam-1 0.476 M")
    # Ten trainings; the rows that share one are not counted again.
    assert "7.4 device hours" in compute and "of 10 finished trainings" in compute
    assert device == "device: Intel(R) Xeon(R) Processor, 1 thread"
    runs, seeds, how, *scores = section(table, "C3", "descriptive")
    assert runs.startswith("finished runs by row: base 10 of 10") and "trainings: 10" in seeds
    assert how == "means, with 95% confidence intervals by Student's t over the seeds"
    base, *_ = scores  # as in report.md
    assert base == "base (10 runs): perplexity 6.293 (6.279 to 6.307), BLEU 31.2 (30.6 to 31.8)"
    assert "beam-1: beam_size 1" in section(table, "C2", "experimental")


def test_a_search_answers_bounds_method_and_runs(search: str) -> None:
    found = section(search, "C2", "experimental")
    assert "learning_rate_factor: 0.1 to 4, log-uniform" in found
    assert any(line.startswith("sampler tpe with seed 1, pruner hyperband") for line in found)
    assert any(line.startswith("best: trial-0019, perplexity 6.625") for line in found)
    trials, pruned, seed = section(search, "results", "exact number")
    assert trials == "trials: 40 planned; 16 done, 24 pruned" and seed == "all with seed 1"
    assert "steps, which the times do not include" in pruned
    scores = section(search, "results", "central")
    assert scores[0].startswith("the best trial, a single run")
    assert any(line.startswith("base (") for line in scores[1:])  # trained again with seeds


def test_what_only_authors_know_is_left_to_them(table: str, search: str) -> None:
    for text in (table, search):
        lines = text.splitlines()
        for number in ("A1", "A2", "B1", "B3", "B4", "D1 to D5", "E1"):
            (line,) = (line for line in lines if line.startswith(f"- **{number}** "))
            assert line.endswith(": yours to answer")
        assert all(each.source in text for each in CHECKLISTS)
        assert sum(line.startswith("- **") for line in lines) == 33


def test_without_results_nothing_is_claimed_and_one_seed_has_no_spread(tmp_path: Path) -> None:
    plan = make_plan(SIGNS, TINY, SIGNS.rows[:1], [1])
    claim_plan(tmp_path, plan)
    empty = checklist(TableFolder(tmp_path))
    assert "C1** parameters, total compute and infrastructure: yours to answer" in empty
    assert "finished runs by row: base 0 of 1" in empty
    (tmp_path / "base/seed-1").mkdir(parents=True)
    save_result(tmp_path / "base/seed-1", result(Cell("base", 1), perplexity=5.25))
    one = checklist(TableFolder(tmp_path))
    *_, how, score = section(one, "C3", "descriptive")
    assert how == "single runs, without a spread"
    assert score == "base (1 run): perplexity 5.250, BLEU 80.0"


def test_a_tuned_table_says_what_it_searched(tmp_path: Path) -> None:
    tuned = replace(SIGNS, tune=Tune(factors=(0.5, 1.0, 3.0), seeds=(2, 3)))
    claim_plan(tmp_path, make_plan(tuned, TINY, tuned.rows[:1], [2, 3]))
    text = checklist(TableFolder(tmp_path))
    line = next(line for line in text.splitlines() if "learning rate of each row" in line)
    assert "times 0.5, 1, 3" in line and "in seed 1 is reported" in line
    assert "searched nothing" not in text


@pytest.mark.slow
def test_the_command_prints_it_without_torch_and_writes_nothing() -> None:
    code = (
        "import sys\nfrom ablations.cli import PROGRAM\n"
        f"code = PROGRAM.run(['report', {str(RESULTS / 'noise-small')!r}, '--checklist'])\n"
        "print(code, *{'torch', 'optuna', 'lightning'} & {*sys.modules})"
    )
    before = sorted((RESULTS / "noise-small").iterdir())
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    first, *_, last = run.stdout.splitlines()
    assert first == "# Checklists: decoding at scale small" and last == "0"
    assert sorted((RESULTS / "noise-small").iterdir()) == before
