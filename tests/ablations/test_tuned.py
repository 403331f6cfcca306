"""A table whose rows choose their learning rates."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from ablations.folder import TableFolder
from ablations.folder.tuning import Tuned, candidate, choose
from ablations.tables.find import TABLES
from ablations.tables.plan import make_plan
from ablations.tables.plan_file import load_plan
from ablations.tables.table import Cell
from ablations.tables.tune import Tune
from experiments.records.run import Run
from tests.ablations.samples import SMALL_TABLE, TINY, Call, prepare_stand_ins, result, started
from transformer.errors import InputError

RUN = "run mine.py --scale tiny --workers 1 --directory out --log none"
MINE = """
from dataclasses import replace
from ablations.tables import Tune, row
from tests.ablations.samples import SMALL_TABLE

rows = (row("base"), row("idea", d_ff=1024, learning_rate_factor=0.25))
tune = Tune(factors=(0.5, 1.0, 2.0), seeds=(2, 3))
TABLE = replace(SMALL_TABLE, name="mine", rows=rows, tune=tune)
"""
# The base of the scale has a learning-rate factor of 0.5.
PERPLEXITIES = {
    "base-x0.5/seed-1": 5.0,
    "base-x1/seed-1": 4.0,
    "base-x2/seed-1": 4.5,
    "idea-x0.5/seed-1": 3.9,
    "idea-x1/seed-1": 3.8,
    "idea-x2/seed-1": 3.5,
    "idea-x4/seed-1": 3.6,
}


@pytest.fixture
def mine(out: Path) -> Path:
    """The directory of the learning rates, with a perplexity for each."""
    out.with_name("mine.py").write_text(MINE)
    prepare_stand_ins(out / "tuning", {}, perplexities=PERPLEXITIES)
    fresh = {"base/seed-2": 4.1, "base/seed-3": 3.7, "idea/seed-2": 3.4, "idea/seed-3": 3.45}
    prepare_stand_ins(out, {}, perplexities=fresh)
    return out / "tuning"


def test_each_row_is_trained_again_at_its_best_learning_rate(
    mine: Path, out: Path, call: Call
) -> None:
    code, shown = call(RUN)
    assert code == 0
    assert sorted(started(mine)) == sorted(PERPLEXITIES) and started(mine)[-1] == "idea-x4/seed-1"
    assert sorted(started(out)) == ["base/seed-2", "base/seed-3", "idea/seed-2", "idea/seed-3"]
    configs = load_plan(out).configs
    assert configs["base"].training.learning_rate_factor == 0.5
    assert configs["idea"].training.learning_rate_factor == 0.25 * 2.0
    assert "idea: x2, at the edge (x0.5 3.900, x1 3.800, x2 3.500, x4 3.600)" in shown
    page = (out / "report.md").read_text()
    section = page.partition("## Learning rates")[2].partition("\n## ")[0]
    lines = {cells[1].strip(): [x.strip() for x in cells[2:-1]] for line in section.splitlines()
             if len(cells := line.split("|")) > 3}  # fmt: skip
    assert lines["base"] == ["5.000", "4.000", "4.500", "", "1", "0 of 3", "", ""]
    minus = "\N{MINUS SIGN}"
    of_idea = ["3.900", "3.800", "3.500", "3.600", "2\\*", "4 of 4", f"{minus}0.200"]
    assert lines["idea"][:7] == of_idea and lines["idea"][7].startswith(f"{minus}0.475")

    code, shown = call(RUN)  # nothing is left
    assert code == 0 and len(started(mine)) == 7 and len(started(out)) == 4
    _, shown = call("plan mine.py --scale tiny --directory out --device H100 --json")
    cost = json.loads(shown)
    assert (cost["runs_left"], cost["tuning"]["runs"], cost["tuning"]["runs_left"]) == (0, 6, 0)


@pytest.mark.slow
def test_the_choice_is_kept_in_a_directory_of_results(mine: Path, out: Path, call: Call) -> None:
    assert call(RUN)[0] == 0
    results = out.with_name("results")
    assert call("collect out --into results")[0] == 0
    assert call("verify results")[0] == 0
    assert (results / "report.md").read_text() == (out / "report.md").read_text()
    assert TableFolder(results).tuned == TableFolder(out).tuned
    assert TableFolder(results).unplanned == []
    assert [*results.glob("*/runs.jsonl")] == []
    # Another directory takes all of it from there, and trains nothing.
    again = out.with_name("again")
    assert call(f"{RUN.replace('out', 'again')} --from results")[0] == 0
    assert not started(again) and not started(again / "tuning")
    assert (again / "report.md").read_text() == (out / "report.md").read_text()


@pytest.mark.slow
def test_runs_of_a_table_that_is_not_tuned_are_taken(mine: Path, out: Path, call: Call) -> None:
    plain = out.with_name("plain.py")
    plain.write_text(MINE.replace(", tune=tune", ""))
    values = {f"base/seed-{seed}": 4.0 for seed in (1, 2, 3)}
    values |= {f"idea/seed-{seed}": 3.8 for seed in (1, 2, 3)}
    prepare_stand_ins(out.with_name("plain"), {}, perplexities=values)
    run = RUN.replace("mine.py", "plain.py").replace("out", "plain")
    assert call(f"{run} --seeds 1-3")[0] == 0
    code, shown = call(f"{RUN} --from plain")
    assert code == 0 and "6 finished runs taken from plain" in shown
    assert "base-x1/seed-1" not in started(mine) and "idea-x1/seed-1" not in started(mine)
    # The base stays as it is, so its fresh seeds are there; the row has another learning rate.
    assert sorted(started(out)) == ["idea/seed-2", "idea/seed-3"]


@pytest.mark.slow
def test_a_row_waits_for_all_of_its_learning_rates(mine: Path, out: Path, call: Call) -> None:
    behaviour = {"idea-x1/seed-1": "crash", "base-x2/seed-1": "diverge"}
    prepare_stand_ins(mine, behaviour, perplexities=PERPLEXITIES)
    code, shown = call(f"{RUN} --retries 0")
    assert (
        code == 1 and "not trained yet, as their learning rates were not all tried: idea" in shown
    )
    assert sorted(started(out)) == ["base/seed-2", "base/seed-3"]
    prepare_stand_ins(mine, {}, perplexities=PERPLEXITIES)
    code, _ = call(f"{RUN} --retry-failed")
    assert code == 0 and sorted(started(out))[2:] == ["idea/seed-2", "idea/seed-3"]
    tuned = TableFolder(out).tuned["base"]
    assert tuned.perplexities == {0.5: 5.0, 1.0: 4.0, 2.0: math.inf}
    assert "diverged" in (out / "report.md").read_text()


def test_a_seed_that_chooses_is_not_reported(mine: Path, out: Path, call: Call) -> None:
    code, shown = call(f"{RUN} --seeds 1-3")
    assert code == 2 and "seed 1 chooses the learning rates and cannot be reported" in shown
    assert not started(mine) and not (out / "table.json").exists()
    with pytest.raises(InputError, match="must rise"):
        Tune(factors=(1.0, 0.5))
    with pytest.raises(InputError, match="seed 2 chooses"):
        Tune(seed=2)


@pytest.mark.parametrize(
    ("perplexities", "factor", "beyond"),
    [
        ({0.5: 5.0, 1.0: 4.0, 2.0: 4.5}, 1.0, None),
        ({0.5: 4.0, 1.0: 4.0, 2.0: 4.5}, 1.0, None),  # of equal ones the one nearest to 1
        ({0.5: math.inf, 1.0: math.inf, 2.0: math.inf}, 1.0, None),
        ({0.5: 3.0, 1.0: 4.0, 2.0: 4.5}, 0.5, 0.25),
        ({0.5: 5.0, 1.0: 4.0, 2.0: 3.5}, 2.0, 4.0),
        ({0.5: 5.0, 1.0: 4.0, 2.0: 3.5, 4.0: 3.0}, 4.0, None),  # no third one
    ],
)
def test_one_factor_more_is_tried_at_an_edge(
    perplexities: dict[float, float], factor: float, beyond: float | None
) -> None:
    tuned = Tuned(Tune(factors=(0.5, 1.0, 2.0)), perplexities)
    assert (tuned.factor, tuned.beyond) == (factor, beyond)


def test_where_all_end_on_a_plateau_the_lowest_is_chosen() -> None:
    table = dataclasses.replace(SMALL_TABLE, tune=Tune(factors=(0.5, 1.0, 2.0)))
    plan = make_plan(table, TINY, table.rows[:1], (2,))
    runs: list[Run] = []
    for factor, perplexity in {0.5: 90.0, 1.0: 85.0, 2.0: 95.0, 4.0: 80.0}.items():
        cell = Cell(candidate("base", factor), 1)
        found = dataclasses.replace(result(cell, perplexity), unigram_perplexity=100.0)
        assert found.has_diverged
        runs.append(Run(name=str(cell), directory=Path(), result=found))
    assert choose(plan, runs[:3])["base"].factor == 1.0
    assert choose(plan, runs)["base"].factor == 4.0


def test_the_tuned_tables_of_the_project() -> None:
    assert TABLES["optimizers"].tune == TABLES["since-tuned"].tune == Tune()
    assert TABLES["since-tuned"].rows == TABLES["since"].rows
    assert Tune().beyond == (0.125, 8.0)
