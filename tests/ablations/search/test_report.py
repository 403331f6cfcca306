"""The report of a search, from files alone, and its best trials trained again."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablations.cli import PROGRAM
from ablations.files import CONFIRM
from ablations.folder import SearchFolder
from ablations.report.search import LEAST_ENDED, shares_of_importance, write_search_report
from ablations.report.search_figures import draw_search
from ablations.runs.attempts import leave_pruned
from ablations.runs.search_runs import importances
from ablations.search.search import Search, claim_search
from ablations.search.space import BASE_LR, PARSING, SHAPE, Space, uniform
from ablations.search.trials import SearchTrial, count_best, plan_confirmation, ranked, write_best
from ablations.tables.changes import Value
from ablations.tables.plan_file import claim_plan, load_plan
from ablations.tables.scales import QUICK
from experiments.catalog.find import find_experiment
from experiments.cli import list_
from experiments.figures.render import to_svg
from experiments.records.experiment import load_experiment
from experiments.records.progress import RunState
from experiments.records.result import load_result, save_result
from tests.ablations.report.samples import drawn, html_tables, marks, tables
from tests.ablations.search.samples import bowl, give_up, leave, search_of, small_search
from transformer.config import override
from transformer.errors import InputError

FACTORS = (0.2, 0.5, 0.7, 0.8, 0.9, 1.1, 1.5, 2.1, 2.5, 3.1, 3.5)


def values(index: int) -> dict[str, Value]:
    factor = FACTORS[index % 11] * (1 + 0.01 * (index // 11))
    return {"learning_rate_factor": factor, "warmup_steps": 101 + 37 * (5 * index % 11)}


def fill(root: Path, search: Search, count: int) -> None:
    """``count`` trials that ended: every third was pruned."""
    rung = search.rungs[0]
    for index, name in enumerate(search.names[:count]):
        perplexity = bowl(values(index))
        if index % 3 == 2:
            leave(search, root / name, values(index), until=rung, perplexity=perplexity)
            leave_pruned(root / name, rung, 2 * perplexity)
        else:
            leave(search, root / name, values(index), perplexity=perplexity, bleu=30.0 + index)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """31 trials that ended, one given up, one under way, one that nobody has begun."""
    directory = tmp_path_factory.mktemp("search")
    search = small_search(directory, trials=34)
    fill(directory, search, 31)
    give_up(search, directory, search.names[31], values(0), "RuntimeError: <Oops> & a | pipe")
    leave(search, directory / f"{search.names[32]}.attempt-1", values(1), until=0)
    write_search_report(SearchFolder(directory))
    return directory


def test_markdown_and_html_show_the_same_trials(root: Path) -> None:
    text = (root / "report.md").read_text(encoding="utf-8")
    assert "34 trials: 21 done, 10 pruned, 1 failed, 1 running, 1 waiting." in text
    best_and_base, trials = tables(root)
    shown = [[list(row.values()) for row in table.values()] for table in (best_and_base, trials)]
    assert html_tables(root) == shown
    assert list(trials) == [f"{number:04}" for number in range(33)]
    (best,) = (row for row in trials.values() if row["state"] == "best")
    assert best["trial"] == "0013" and best["warmup steps"] == "31400 (471)"
    assert shown[0][2:4] == [
        ["learning rate factor", "0.5", "0.707"],
        ["warmup steps", "20000 (300)", "31400 (471)"],
    ]
    assert (root / "best.json").is_file()


def test_html_draws_each_trial(root: Path) -> None:
    figures = drawn(root)
    assert list(figures) == ["history", "curves", "importances", "slices"]
    assert len(marks(figures["history"], "symbol")) == 32  # also the one that was given up
    assert len(marks(figures["importances"], "rect")) == 2
    assert len(marks(figures["slices"], "symbol")) == 2 * 32
    text = (root / "report.html").read_text(encoding="utf-8")
    assert '"warmup_steps (trained)": "31400 (471)"' in text
    assert "&lt;Oops&gt; &amp; a | pipe" in text and "<Oops>" not in text


@pytest.mark.usefixtures("undrawn")
def test_chrf_stands_beside_bleu_where_a_trial_has_it(tmp_path: Path) -> None:
    search = small_search(tmp_path, trials=2)
    for index, name in enumerate(search.names):
        leave(search, tmp_path / name, values(index))
    result = load_result(tmp_path / search.names[1])
    assert result is not None
    save_result(tmp_path / search.names[1], dataclasses.replace(result, chrf=57.25))
    write_search_report(SearchFolder(tmp_path))
    *_, trials = tables(tmp_path)
    assert [row["chrF"] for row in trials.values()] == ["", "57.2"]


@pytest.mark.usefixtures("undrawn")
def test_one_trial_is_written_of_as_one(tmp_path: Path) -> None:
    search = small_search(tmp_path, trials=1)
    leave(search, tmp_path / search.names[0], values(0), until=search.rungs[0])
    leave_pruned(tmp_path / search.names[0], search.rungs[0], 9.0)
    assert "1 trial: 1 pruned." in write_search_report(SearchFolder(tmp_path))
    assert "The 1 trial that ended took 668 steps" in (tmp_path / "report.md").read_text("utf-8")


@pytest.mark.usefixtures("undrawn")
def test_few_trials_have_no_importances(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    text = write_search_report(SearchFolder(tmp_path))
    assert "No trial has finished yet." in text
    fill(tmp_path, search, 5)
    text = write_search_report(SearchFolder(tmp_path))
    assert "The best is trial-0003" in text
    assert "Importances need 30 ended trials, 5 of them finished." in text
    assert "importances.svg" not in (tmp_path / "report.md").read_text()


def of_perplexities(perplexities: Sequence[float | None]) -> list[SearchTrial]:
    """A trial for each; None diverged."""
    states = [RunState.DIVERGED if x is None else RunState.DONE for x in perplexities]
    return [
        SearchTrial(name=f"trial-{n:04}", state=state, perplexity=x, values=values(n), step=3 * n)
        for n, (x, state) in enumerate(zip(perplexities, states, strict=True))
    ]


@pytest.mark.parametrize(
    ("perplexities", "best"),
    [
        ([2.0] * 32, 0),
        ([2.0 + 1e-6 * x for x in range(32)], 0),  # the report shows no difference
        ([math.inf] * 32, 0),
        ([2.0] * 31 + [9.0], 0),
        ([1.5] * 4 + [2.0] * 28, 0),
        ([1.5] * 5 + [2.0] * 27, 5),
        ([1.5] * 5 + [None] * 27, 5),
        ([1.5] * 12 + [2.0] * 20, 12),
        ([2.0 + 0.01 * x for x in range(32)], 8),
        ([2.0 + 0.01 * x for x in range(30)], 8),
    ],
)
def test_importances_are_of_trials_that_stand_out(
    perplexities: list[float | None], best: int
) -> None:
    trials = of_perplexities(perplexities)
    assert count_best(ranked(trials)) == best
    shares = shares_of_importance(search_of(), trials)
    assert sum(shares.values()) == pytest.approx(1.0 if best else 0.0)
    again = shares_of_importance(search_of(), trials[::-1])
    assert again == pytest.approx(shares)  # equal trials have no order


@pytest.mark.usefixtures("undrawn")
def test_a_search_whose_perplexity_does_not_vary_says_so(tmp_path: Path) -> None:
    search = small_search(tmp_path, trials=30)
    for index, name in enumerate(search.names):
        leave(search, tmp_path / name, values(index), perplexity=2.0)
    text = write_search_report(SearchFolder(tmp_path))
    assert "The perplexities are too similar to say which hyperparameters matter." in text
    assert "importances.svg" not in (tmp_path / "report.md").read_text()


def test_the_examples_have_as_many_trials_as_the_importances_need() -> None:
    page = Path(__file__).parents[3] / "docs" / "search.md"
    texts = [PROGRAM.app["search"].help_epilogue or "", page.read_text(encoding="utf-8")]
    counts = re.findall(r"search \S+ --scale \w+ --trials (\d+)", " ".join(texts))
    assert len(counts) > 3 and all(int(count) >= LEAST_ENDED for count in counts)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "low", "high"), [(30, 181, 200), (10, 80, 140)])
def test_importances_find_one_of_five_with_ten_times_the_effect(
    tmp_path: Path, count: int, low: int, high: int
) -> None:
    """In more than nine of ten searches of 30 trials, and in about half of those of ten."""
    names = ("dropout", "label_smoothing", "adam_beta1", "adam_beta2", "learning_rate_factor")
    space = Space(name="five", title="", parameters=tuple(uniform(x, 0.1, 0.9) for x in names))
    search = small_search(tmp_path, space)
    draw, first = random.Random(1), 0
    for _ in range(200):
        trials: list[SearchTrial] = []
        for _ in range(count):
            found = {name: draw.uniform(0.1, 0.9) for name in names}
            squares = {name: (value - 0.42) ** 2 for name, value in found.items()}
            perplexity = 3.0 + sum(squares.values()) / 10 + 0.9 * squares[names[2]]
            perplexity += draw.gauss(0.0, 0.0064)
            trials.append(
                SearchTrial(name="", state=RunState.DONE, values=found, perplexity=perplexity)
            )
        first += next(iter(importances(search, trials))) == names[2]
    assert low <= first <= high, first


@pytest.mark.usefixtures("undrawn")
def test_notes_depend_on_the_space(tmp_path: Path) -> None:
    search = small_search(tmp_path, SHAPE)
    write_search_report(SearchFolder(tmp_path))
    shape = (tmp_path / "report.md").read_text()
    assert (
        f"\n- Models with more than {search.max_parameters:,} parameters were not sampled" in shape
    )
    assert "\n- d_v takes the value of d_k.\n" in shape
    assert "can raise BLEU" not in shape  # as in the committed report on label smoothing


def test_the_best_is_found_by_its_file_exactly_as_it_was_trained(tmp_path: Path) -> None:
    search, path = small_search(tmp_path, seed=7), tmp_path / "best.json"
    write_best(search, SearchFolder(tmp_path).trials(), tmp_path)
    assert not path.exists()
    for number, perplexity in enumerate((3.5, 3.0, 2.9)):
        leave(search, tmp_path / search.names[number], values(number), perplexity=perplexity)
        write_best(search, SearchFolder(tmp_path).trials(), tmp_path)
    best = find_experiment(str(path)).config
    assert best == load_experiment(tmp_path / "trial-0002").config


@pytest.mark.usefixtures("undrawn")
def test_the_best_is_found_by_name_where_nothing_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    root, name = Path("runs") / "base_lr-tiny", "base_lr-tiny-best"
    search = small_search(root)
    (root / "best.py").write_text("from pathlib import Path; Path('executed').touch()")
    with pytest.raises(InputError, match="unknown experiment"):
        find_experiment(name)
    leave(search, root / search.names[0], values(0), perplexity=3.5)
    write_search_report(SearchFolder(root))
    assert (
        f"in runs/, by name with python -m experiments train {name}."
        in (root / "report.md").read_text()
    )
    assert find_experiment(name, seed=2).config == override(
        find_experiment(str(root / "best.json")).config, seed=2
    )
    with pytest.raises(InputError, match=f"did you mean '{name}'"):
        find_experiment("base_lr-tny-best")
    list_()
    assert f"\n{name}  Learning rate and warm-up, the best of 1" in capsys.readouterr().out
    shutil.copytree(root, Path("runs") / "again")
    with pytest.raises(InputError, match=r"name one file, runs/again/best\.json or runs/base_lr"):
        find_experiment(name)
    (root / "best.json").write_text('{"name": ')
    with pytest.warns(UserWarning, match="base_lr-tiny/best.json cannot be read as JSON"):
        assert find_experiment(name)
    assert not Path("executed").exists()


def test_the_best_are_trained_again_with_fresh_seeds(tmp_path: Path) -> None:
    search = small_search(tmp_path, trials=6)
    leave(search, tmp_path / search.names[0], search.first(), perplexity=3.1)  # the base, second
    for name, factor in zip(search.names[1:], (0.2, 0.65, 3.0, 0.8, 0.65), strict=True):
        found = {"learning_rate_factor": factor, "warmup_steps": 101}
        leave(search, tmp_path / name, found, perplexity=bowl(found))
    trials = SearchFolder(tmp_path).trials()
    for count in (0, 5):
        with pytest.raises(InputError, match=f"--confirm is {count}, but 4 trials other than the"):
            plan_confirmation(search, trials, count, tmp_path)
    two = plan_confirmation(search, trials, 2, tmp_path).rows  # the same values count once
    assert [row.name for row in two] == ["base", "trial-0002", "trial-0004"]
    plan = claim_plan(tmp_path / CONFIRM, plan_confirmation(search, trials, 1, tmp_path))
    assert [row.name for row in plan.rows] == ["base", "trial-0002"]
    assert {row.seeds for row in plan.rows} == {(2, 3, 4)} and search.base.training.seed == 1
    training = plan.configs["trial-0002"].training
    assert (training.learning_rate_factor, training.warmup_steps) == (0.65, 101)

    now_better = {"learning_rate_factor": 0.8, "warmup_steps": 101}
    leave(search, tmp_path / search.names[4], now_better, perplexity=2.9)
    again = plan_confirmation(search, SearchFolder(tmp_path).trials(), 1, tmp_path)
    claim_plan(tmp_path / CONFIRM, again)
    rows = load_plan(tmp_path / CONFIRM).rows  # the earlier one stays, after the best
    assert [row.name for row in rows] == ["base", "trial-0004", "trial-0002"]


@pytest.mark.usefixtures("undrawn")
def test_a_search_of_a_parser_has_f1_and_its_best_are_trained_again_too(tmp_path: Path) -> None:
    search = claim_search(tmp_path, search_of(PARSING, PARSING.scales[0]))
    leave(search, tmp_path / search.names[0], search.first())
    leave(search, tmp_path / search.names[1], {**search.first(), "dropout": 0.3})
    plan = plan_confirmation(search, SearchFolder(tmp_path).trials(), 1, tmp_path)
    assert claim_plan(tmp_path / CONFIRM, plan).measures == ("perplexity", "f1")
    text = write_search_report(SearchFolder(tmp_path))
    assert "F1" in text and "BLEU" not in text


SEARCH = search_of(replace(BASE_LR, parameters=(*BASE_LR.parameters, SHAPE.parameters[1])), QUICK)
ENDS = (  # of trials, for their figures
    (RunState.DONE, 5.0),
    (RunState.PRUNED, 40.0),
    (RunState.DONE, 4.0),
    (RunState.DIVERGED, None),
    (RunState.DONE, 900.0),  # much worse than the best
    (RunState.FAILED, None),
    (RunState.PRUNED, 3.9),  # at an earlier step, and so not comparable
    (RunState.RUNNING, None),
)
TRIALS = [
    SearchTrial(
        name=f"trial-{number:04}",
        state=state,
        values={"learning_rate_factor": 0.1 + 0.2 * number, "warmup_steps": 64, "d_model": 96},
        perplexity=perplexity,
    )
    for number, (state, perplexity) in enumerate(ENDS)
]
DRAWN = draw_search(SEARCH, TRIALS, {})


def points(spec: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The numbers of the trials along the axis of perplexity, and of those at its edge."""
    inside, edge = (x for x in spec["layer"] if x["mark"]["type"] == "point")
    assert inside["encoding"]["y"]["scale"]["type"] == "log"
    assert edge["encoding"]["y"] == {"value": 0}
    found = [[x["trial"][-1] for x in layer["data"]["values"]] for layer in (inside, edge)]
    return found[0], found[1]


def test_the_axis_of_perplexity_belongs_to_finished_trials() -> None:
    history = DRAWN["history"]
    for spec in (history, *DRAWN["slices"]["concat"]):
        assert points(spec) == (["0", "2"], ["1", "3", "4", "5", "6"])
    (line,) = (x for x in history["layer"] if x["mark"]["type"] == "line")
    corners = [(x["number"], x["perplexity"]) for x in line["data"]["values"]]
    assert corners == [(0, 5.0), (2, 4.0), (6, 4.0)]  # until the last that ended
    assert not draw_search(SEARCH, TRIALS[:2], {})


@pytest.mark.slow
def test_the_axis_of_perplexity_has_all_labels_that_fit() -> None:
    trials = [replace(TRIALS[0], perplexity=value) for value in (6.6, 7.8)]
    shown = to_svg(draw_search(SEARCH, trials, {})["history"])
    assert [x for x in range(66, 79) if f">{x / 10:g}<" not in shown] == []


def test_slices_have_the_bounds_of_each_parameter_in_the_units_of_the_space() -> None:
    rate, warm_up, width = (panel["layer"][0] for panel in DRAWN["slices"]["concat"])
    assert rate["encoding"]["x"]["scale"]["domain"] == [0.1, 4.0]
    scale = warm_up["encoding"]["x"]["scale"]
    assert (scale["type"], scale["nice"], scale["domain"]) == ("log", False, [500, 40_000])
    assert width["encoding"]["x"]["type"] == "ordinal"
    assert width["encoding"]["x"]["scale"]["domain"] == [256, 384, 512, 640, 768]
