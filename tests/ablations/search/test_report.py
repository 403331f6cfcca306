"""The report of a search, from files alone, and its best trials trained again."""

from __future__ import annotations

import dataclasses
import random
import re
import shutil
from pathlib import Path

import pytest

from ablations.cli import PROGRAM
from ablations.files import CONFIRM
from ablations.runs.attempts import leave_pruned
from ablations.search.cells import importances
from ablations.search.report import LEAST_ENDED, write_search_report
from ablations.search.search import Search
from ablations.search.space import REGULARISATION, SHAPE, Space, uniform
from ablations.search.trials import Trial, plan_confirmation, read_trials, write_best
from ablations.tables.changes import Value
from ablations.tables.plan import claim_plan, load_plan
from experiments.catalog.find import find_experiment
from experiments.cli import list_
from experiments.records.experiment import load_experiment
from experiments.records.progress import RunState
from experiments.records.result import save_result
from tests.ablations.report.samples import drawn, html_tables, marks, tables
from tests.ablations.samples import result
from tests.ablations.search.samples import bowl, give_up, leave, small_search
from transformer import formats
from transformer.config import override
from transformer.errors import InputError

RESULTS = Path(__file__).parents[3] / "experiments" / "results"
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
    write_search_report(directory)
    return directory


def test_markdown_and_html_show_the_same_trials(root: Path) -> None:
    text = (root / "report.md").read_text(encoding="utf-8")
    assert "34 trials: 21 done, 10 pruned, 1 failed, 1 running, 1 waiting." in text
    search = small_search(root, trials=34)
    last, rung = search.base.training.max_steps, search.rungs[0]
    took, whole = 21 * last + 10 * rung, 31 * last
    assert f"The 31 trials that ended took {took:,} steps in place of {whole:,}: pruning" in text
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
    assert list(figures) == ["history", "curves", "parallel", "importances", "slices"]
    assert len(marks(figures["history"], "symbol")) == 32  # also the one that was given up
    assert len(marks(figures["importances"], "rect")) == 2
    assert len(marks(figures["slices"], "symbol")) == 2 * 32
    text = (root / "report.html").read_text(encoding="utf-8")
    assert '"warmup_steps (trained)": "31400 (471)"' in text
    assert "&lt;Oops&gt; &amp; a | pipe" in text and "<Oops>" not in text


def test_the_parameter_that_matters_is_found(root: Path) -> None:
    search = small_search(root, trials=34)
    shares = importances(search, read_trials(search, root))
    assert list(shares) == ["learning_rate_factor", "warmup_steps"]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["learning_rate_factor"] > 0.6


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", sorted(x.parent.name for x in RESULTS.glob("*/search.json")))
def test_committed_reports_are_as_they_would_be_written_now(name: str, tmp_path: Path) -> None:
    root = shutil.copytree(RESULTS / name, tmp_path / name)
    write_search_report(root)
    for file in ("report.md", "best.json"):
        committed = (RESULTS / name / file).read_text(encoding="utf-8")
        found = (root / file).read_text(encoding="utf-8")
        assert found == committed, f"python -m ablations report experiments/results/{name}"


@pytest.mark.usefixtures("undrawn")
def test_few_trials_have_no_importances(tmp_path: Path) -> None:
    search = small_search(tmp_path)
    text = write_search_report(tmp_path)
    assert "No trial has finished yet." in text
    fill(tmp_path, search, 5)
    text = write_search_report(tmp_path)
    assert "The best is trial-0003" in text
    assert "Importances need 30 trials that ended, 5 of them finished." in text
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
        trials: list[Trial] = []
        for _ in range(count):
            found = {name: draw.uniform(0.1, 0.9) for name in names}
            squares = {name: (value - 0.42) ** 2 for name, value in found.items()}
            perplexity = 3.0 + sum(squares.values()) / 10 + 0.9 * squares[names[2]]
            perplexity += draw.gauss(0.0, 0.0064)
            trials.append(Trial(name="", state=RunState.DONE, values=found, perplexity=perplexity))
        first += next(iter(importances(search, trials))) == names[2]
    assert low <= first <= high, first


@pytest.mark.usefixtures("undrawn")
def test_notes_depend_on_the_space(tmp_path: Path) -> None:
    searches = [small_search(tmp_path / space.name, space) for space in (REGULARISATION, SHAPE)]
    for search in searches:
        write_search_report(tmp_path / search.space)
    smoothing, shape = ((tmp_path / x.space / "report.md").read_text() for x in searches)
    assert "can raise BLEU" in smoothing and "can raise BLEU" not in shape
    assert f"\n- No model has more than {searches[1].max_parameters:,} parameters" in shape
    assert "\n- d_v takes the value of d_k.\n" in shape


def test_the_best_is_found_by_its_file_exactly_as_it_was_trained(tmp_path: Path) -> None:
    search, path = small_search(tmp_path, seed=7), tmp_path / "best.json"
    write_best(search, read_trials(search, tmp_path), tmp_path)
    assert not path.exists()
    for number, perplexity in enumerate((3.5, 3.0, 2.9)):
        leave(search, tmp_path / search.names[number], values(number), perplexity=perplexity)
        write_best(search, read_trials(search, tmp_path), tmp_path)
    found = find_experiment(str(path))
    assert found.config == load_experiment(tmp_path / "trial-0002").config
    assert (found.name, found.description) == (
        "base_lr-tiny-best",
        "Learning rate and warm-up, the best of 3 trials at scale tiny: trial-0002, "
        "perplexity 2.900",
    )


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
    write_search_report(root)
    assert f"in runs/, by name: train {name}." in (root / "report.md").read_text()
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


@pytest.mark.usefixtures("undrawn")
def test_the_best_are_trained_again_with_fresh_seeds_and_reported(tmp_path: Path) -> None:
    search = small_search(tmp_path, trials=5)
    leave(search, tmp_path / search.names[0], search.first(), perplexity=3.1)  # the base, second
    for name, factor in zip(search.names[1:], (0.2, 0.65, 3.0, 0.8), strict=True):
        found = {"learning_rate_factor": factor, "warmup_steps": 101}
        leave(search, tmp_path / name, found, perplexity=bowl(found))
    trials = read_trials(search, tmp_path)
    for count in (0, 5):
        with pytest.raises(InputError, match=f"--confirm is {count}, but 4 trials other than the"):
            plan_confirmation(search, trials, count, tmp_path)
    plan = claim_plan(tmp_path / CONFIRM, plan_confirmation(search, trials, 1, tmp_path))
    assert [row.name for row in plan.rows] == ["base", "trial-0002"]
    assert {row.seeds for row in plan.rows} == {(2, 3, 4)} and search.base.training.seed == 1
    training = plan.configs["trial-0002"].training
    assert (training.learning_rate_factor, training.warmup_steps) == (0.65, 101)

    for cell in plan.cells:
        perplexity = (3.0 if cell.row == "base" else 2.5) + 0.01 * cell.seed
        named = dataclasses.replace(
            result(cell, perplexity), experiment=f"{plan.table}-{plan.scale}/{cell.row}"
        )
        cell.directory(tmp_path / CONFIRM).mkdir(parents=True)
        save_result(cell.directory(tmp_path / CONFIRM), named)
    write_search_report(tmp_path)
    page = (tmp_path / "report.md").read_text()
    assert "## Trained again with other seeds" in page
    (line,) = (x for x in page.splitlines() if x.startswith("| trial-0002 ") and "±" in x)
    assert "2.530 ± 0.010" in line and formats.difference(-0.5, 3) in line

    now_better = {"learning_rate_factor": 0.8, "warmup_steps": 101}
    leave(search, tmp_path / search.names[4], now_better, perplexity=2.9)
    again = plan_confirmation(search, read_trials(search, tmp_path), 1, tmp_path)
    claim_plan(tmp_path / CONFIRM, again)
    rows = load_plan(tmp_path / CONFIRM).rows  # the earlier one stays, after the best
    assert [row.name for row in rows] == ["base", "trial-0004", "trial-0002"]
