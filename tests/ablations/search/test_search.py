"""A search's directory, its copy, and what the sampler draws."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import optuna
import pytest

from ablations.cli import collect
from ablations.folder import SearchFolder, TableFolder
from ablations.runs.attempts import leave_pruned
from ablations.runs.sampler import FeasibleSampler, check_feasible, distributions
from ablations.search.search import Search, claim_search, load_search
from ablations.search.space import BASE_LR, REGULARISATION, SHAPE, Space, choice, uniform, whole
from ablations.tables.plan_file import claim_plan
from ablations.tables.scales import QUICK, SCALES, SMALL
from experiments.records.progress import RunState
from tests.ablations.samples import TINY, small_plan
from tests.ablations.search.samples import bowl, leave, search_of, small_search, work_on
from tests.samples import write_corpus
from transformer.config import override
from transformer.data.corpora.folders import folder_corpus
from transformer.errors import InputError
from transformer.evaluation.counts import count_parameters
from transformer.variant import FILES_VARIABLE
from transformer.variants.layers import GeluTransformer


def test_a_search_is_read_back_as_it_was_claimed_and_extended(tmp_path: Path) -> None:
    claimed = small_search(tmp_path, SHAPE, seed=5, sampler="random", pruner="none")
    assert load_search(tmp_path) == claimed
    assert claimed.base.training.seed == 5
    assert claimed.max_parameters == count_parameters(claimed.base.model)
    assert claimed.names[::6] == ("trial-0000", "trial-0006")
    for asked in (11, 3):  # fewer do not shorten it
        more = small_search(tmp_path, SHAPE, seed=5, sampler="random", pruner="none", trials=asked)
        assert more == replace(claimed, trials=11)


def test_a_space_may_say_how_often_its_trials_are_validated() -> None:
    own = replace(BASE_LR, base=override(BASE_LR.base, validate_every_steps=15))
    ours, theirs = search_of(), search_of(own)
    assert ours.base.training.validate_every_steps == 1_500 // 9 + 1
    assert theirs.base.training.validate_every_steps == 15


def test_another_search_is_refused_with_the_difference(tmp_path: Path) -> None:
    small_search(tmp_path)
    wider = replace(
        BASE_LR,
        parameters=(uniform("learning_rate_factor", 0.1, 8.0, log=True), BASE_LR.parameters[1]),
    )
    for other, difference in (
        (search_of(scale=QUICK), "(scale: 'tiny' -> 'quick')"),
        (search_of(REGULARISATION), "(space: 'base_lr' -> 'regularisation')"),
        (search_of(seed=2), "base.training.seed: 1 -> 2"),
        (search_of(pruner="none"), "(pruner: 'hyperband' -> 'none')"),
        (search_of(wider), "(parameters.learning_rate_factor.high: 4.0 -> 8.0)"),
    ):
        with pytest.raises(InputError, match="belongs to another search") as error:
            claim_search(tmp_path, other)
        assert difference in str(error.value)


def test_a_search_continues_where_its_text_has_moved(tmp_path: Path) -> None:
    def search(machine: str) -> Search:
        text = write_corpus(tmp_path / machine / "numbers")
        return search_of(scale=replace(TINY, corpus=folder_corpus(text)), trials=3)

    claim_search(root := tmp_path / "search", search("laptop"))
    work_on(root, bowl, count=2)
    after = claim_search(root, search("cluster"))
    assert "cluster" in str(after.base) and "laptop" not in str(after.base)
    states = [trial.state for trial in SearchFolder(root).trials()]
    assert states == ["done", "done", "waiting"]


@pytest.mark.slow
def test_what_ended_is_copied_and_the_rest_is_searched_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    search = small_search(source)
    work_on(source, bowl, count=4)
    values = {"learning_rate_factor": 1.0, "warmup_steps": 101}
    leave(search, source / f"{search.names[4]}.attempt-1", values, until=0)
    ending = source / f"{search.names[5]}.attempt-1"
    leave(search, ending, values, until=search.rungs[0])
    leave_pruned(ending, search.rungs[0], 9.0)
    (source / search.names[0] / "checkpoints").mkdir()
    (source / search.names[3] / "config.json").write_text("{")
    with pytest.warns(UserWarning, match="trial-0003: left out: .*config.json"):
        collect(source, into=target)
    assert capsys.readouterr().out == f"3 runs added to {target}\n"
    copied = SearchFolder(target).trials()
    assert copied[:3] == SearchFolder(source).trials()[:3]
    assert {trial.state for trial in copied[3:]} == {RunState.WAITING}
    assert not (target / search.names[0] / "checkpoints").exists()

    work_on(target, bowl)
    ended = {trial.state for trial in SearchFolder(target).trials()}
    assert ended <= {RunState.DONE, RunState.PRUNED}
    with pytest.warns(UserWarning, match="left out"):
        assert SearchFolder(source).collect(target) == []


def test_runs_of_another_kind_are_not_mixed_in(tmp_path: Path) -> None:
    small_search(tmp_path / "search")
    claim_plan(tmp_path / "table", small_plan())
    with pytest.raises(InputError, match=r"table has other runs \(table.json\)"):
        SearchFolder(tmp_path / "search").collect(tmp_path / "table")
    with pytest.raises(InputError, match=r"search has other runs \(search.json\)"):
        TableFolder(tmp_path / "table").collect(tmp_path / "search")


@pytest.mark.parametrize("pruner", ["hyperband", "median"])
@pytest.mark.parametrize("space", [BASE_LR, REGULARISATION, SHAPE], ids=lambda space: space.name)
def test_rungs_are_validations_after_the_longest_warm_up(space: Space, pruner: str) -> None:
    for scale in SCALES:
        search = search_of(space, scale, pruner=pruner)
        training = search.base.training
        longest = max(
            [int(x.high) for x in search.parameters if x.name == "warmup_steps"]
            or [training.warmup_steps]
        )
        assert longest < search.rungs[0] <= longest + training.validate_every_steps
        assert search.rungs[-1] < training.max_steps
        assert all(step % training.validate_every_steps == 0 for step in search.rungs)


def test_values_are_known_in_the_units_of_the_space() -> None:
    search = search_of(scale=QUICK)
    assert search.values(search.base) == {"learning_rate_factor": 0.5, "warmup_steps": 500}
    assert search.declare(search.values(search.base)) == {
        "learning_rate_factor": 0.5,
        "warmup_steps": 500 * 100_000 // 1_600,
    }
    for space in (BASE_LR, SHAPE, REGULARISATION):
        search = search_of(space, QUICK)
        for ours, theirs in zip(search.parameters, search.declared, strict=True):
            found = [ours.declare(value, theirs) for value in (ours.bounds[0], ours.bounds[-1])]
            assert found == pytest.approx([theirs.bounds[0], theirs.bounds[-1]])
    gelu = choice("model", None, GeluTransformer)
    assert gelu.declare(None, gelu) is None


def test_where_trials_are_pruned_or_why_not_is_said() -> None:
    search = search_of(SHAPE, SMALL)
    assert search.describe_rungs() == (
        "Hyperband keeps about a third of the trials after the longest warm-up that the space "
        "allows (1,600): at step 2,668, 8,004."
    )
    told = replace(search, pruner="median").describe_rungs()
    assert told.startswith("Trials worse than the median") and "(1,600): at step 2,668, 4" in told
    assert "--pruner none" in replace(search, pruner="none").describe_rungs()
    whole_warm_up = replace(BASE_LR, parameters=(whole("warmup_steps", 500, 95_000),))
    assert search_of(whole_warm_up).rungs == replace(search, pruner="none").rungs == ()
    long = replace(search, base=override(search.base, warmup_steps=11_000))
    assert long.rungs == ()
    assert "(11,000) leaves no validation before the last step" in long.describe_rungs()


def test_samples_stay_within_the_budget() -> None:
    search = search_of(SHAPE, trials=30, seed=3)
    study = optuna.create_study(sampler=FeasibleSampler(search))
    for _ in range(13):
        trial = study.ask(distributions(search))
        assert search.is_feasible(trial.params)
        study.tell(trial, float(trial.params["d_model"]))
    assert {trial.params["num_heads"] for trial in study.trials} > {8}


@pytest.mark.parametrize(("sampler", "trials"), [("tpe", 59), ("random", 79)])
def test_the_sampler_learns_from_earlier_trials(sampler: str, trials: int) -> None:
    """Where nine tenths of even draws are poor, most of the later ones are not."""
    space = replace(REGULARISATION, parameters=(*REGULARISATION.parameters, SHAPE.parameters[3]))
    search = search_of(space, trials=30, seed=3, sampler=sampler)
    study = optuna.create_study(sampler=FeasibleSampler(search))
    for _ in range(trials):
        trial = study.ask(distributions(search))
        study.tell(trial, abs(trial.params["dropout"] - 0.1))
    later = [abs(trial.params["dropout"] - 0.1) for trial in study.trials[-11:]]
    assert (sum(distance < 0.02 for distance in later) > 3) == (sampler != "random")
    assert len({trial.params["num_heads"] for trial in study.trials}) > 3


def test_samples_depend_on_the_seed_and_the_trial_only() -> None:
    def draw(seed: int, skip: int = 0) -> list[dict[str, float]]:
        search = search_of(seed=seed)
        study = optuna.create_study(sampler=FeasibleSampler(search))
        study.add_trials([optuna.trial.create_trial(value=1.0)] * skip)
        return [study.ask(distributions(search)).params for _ in range(3)]

    drawn = draw(1)
    assert len({json.dumps(values) for values in drawn}) == 3
    assert draw(1) == drawn
    assert draw(2) != drawn
    assert draw(1, skip=1)[:2] == drawn[1:]


def test_no_values_are_tried_twice_until_all_have_been(tmp_path: Path) -> None:
    parameters = choice("num_heads", 1, 2, 4, 8), choice("positions", "sinusoidal", "learned")
    small_search(tmp_path, Space(name="few", title="", parameters=parameters), trials=9)
    work_on(tmp_path, lambda values: 3.0 + abs(values["num_heads"] - 4))
    drawn = [json.dumps(dict(trial.values)) for trial in SearchFolder(tmp_path).trials()]
    assert len(set(drawn[:8])) == len(set(drawn)) == 8


def test_a_space_that_cannot_be_sampled_is_refused() -> None:
    large = Space(name="large", title="", parameters=(choice("d_model", 1024, 2048),), budget=1.0)
    search = search_of(large, TINY)
    assert search.first() == {}
    with pytest.raises(InputError, match=r"no model of at most .* parameters among .* drawn"):
        check_feasible(search)


def test_values_that_make_no_valid_model_are_not_tried() -> None:
    space = Space(name="odd", title="", parameters=(whole("d_model", 256, 1024),))
    search = search_of(space)
    assert [search.is_feasible({"d_model": width}) for width in (32, 33, 34)] == [True, False, True]
    study = optuna.create_study(sampler=FeasibleSampler(search))
    widths = [study.ask(distributions(search)).params["d_model"] for _ in range(9)]
    assert not any(width % 2 for width in widths)


def test_values_that_a_variant_refuses_are_named_and_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FILES_VARIABLE, "")
    path = tmp_path / "odd.py"
    path.write_text(
        "from transformer import Transformer\n\nclass Odd(Transformer):\n"
        "    def __init__(self, config):\n        1 / (config.num_heads - 2)\n"
        "        super().__init__(config)\n"
    )
    model, heads = choice("model", f"{path}:Odd", None), choice("num_heads", 1, 2)
    search = search_of(Space(name="odd", title="", parameters=(model, heads)))
    assert search.is_feasible({"model": None, "num_heads": 2})
    assert search.is_feasible({"model": model.choices[0], "num_heads": 1})
    with pytest.warns(UserWarning, match="not tried: the variant odd:Odd.* cannot be built"):
        assert not search.is_feasible({"model": model.choices[0], "num_heads": 2})
