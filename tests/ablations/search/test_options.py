"""Searches among methods and their options, which only trials of their class have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest

from ablations.folder import SearchFolder
from ablations.report.search import write_search_report
from ablations.runs.sampler import FeasibleSampler
from ablations.runs.search_runs import SearchRuns, importances
from ablations.search.search import SearchOptions, make_search
from ablations.search.space import Space, choice, load_space, uniform, whole
from ablations.search.trials import plan_confirmation
from ablations.tables.changes import columns
from ablations.tables.scales import QUICK
from experiments.catalog.find import find_experiment
from tests.ablations.search.samples import leave, search_of, small_search
from tests.test_readme import snippet
from transformer.errors import InputError
from transformer.variant import FILES_VARIABLE, variant_name
from transformer.variants.layers import GeluTransformer
from transformer.variants.optimizers import AdamW, Muon

SPACE = Space(
    name="decay",
    title="AdamW, Muon or Adam",
    parameters=(
        choice("method", None, AdamW, Muon),
        uniform("AdamW.weight_decay", 0.01, 0.5, log=True),
        uniform("dropout", 0.0, 0.4),
    ),
)
ADAMW = variant_name(AdamW)
DECAY = "AdamW.weight_decay"


def of(trial: Mapping[str, Any]) -> float:
    """Lowest with AdamW and a decay of 0.3."""
    return 3.0 + (abs(trial[DECAY] - 0.3) if DECAY in trial else 1.0) + trial["dropout"]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_an_option_is_drawn_only_in_trials_of_its_class(tmp_path: Path) -> None:
    search = small_search(tmp_path, SPACE, trials=24)
    planned = SearchRuns(tmp_path)
    study = planned.create_study(optuna.storages.InMemoryStorage())
    found: list[dict[str, Any]] = []
    for name in search.names:
        trial = planned.ask(study, name)
        found.append(trial.params)
        config = planned.experiment(name, trial).config
        assert (DECAY in trial.params) == (config.training.method == ADAMW)
        assert search.contains(config) and search.values(config) == trial.params
        if DECAY in trial.params:
            assert dict(config.training.method_options) == {"weight_decay": trial.params[DECAY]}
        study.tell(trial, of(trial.params))
    with_option = [x for x in found if DECAY in x]
    assert len({x[DECAY] for x in with_option}) == len(with_option) > 3
    assert {x["method"] for x in found} == set(search.parameters[0].choices)


@pytest.mark.slow
def test_a_search_with_options_is_restored_reported_and_confirmed(tmp_path: Path) -> None:
    search = small_search(tmp_path, SPACE, trials=4)
    trials = [
        {"method": ADAMW, DECAY: 0.2, "dropout": 0.1},
        {"method": variant_name(Muon), "dropout": 0.2},
        {"method": None, "dropout": 0.3},
    ]
    for name, values in zip(search.names, trials, strict=False):
        leave(search, tmp_path / name, values, perplexity=of(values))
    folder = SearchFolder(tmp_path)
    assert [dict(trial.values) for trial in folder.trials()[:3]] == trials
    restored = SearchRuns(tmp_path).restore([])
    assert [dict(trial.params) for trial in restored[:3]] == trials
    assert "AdamW.weight_decay" in write_search_report(folder)
    best = find_experiment(str(tmp_path / "best.json")).config
    assert dict(best.training.method_options) == {"weight_decay": 0.2}
    plan = plan_confirmation(search, folder.trials(), 2, tmp_path)
    found = {name: columns(config).get(DECAY) for name, config in plan.configs.items()}
    assert found == {"base": None, search.names[0]: 0.2, search.names[1]: None}
    assert importances(search, folder.trials()).keys() == {"method", "dropout"}


def test_options_that_are_not_searched_have_their_defaults() -> None:
    space = Space(name="m", title="", parameters=(choice("method", None, AdamW, Muon),))
    search = search_of(space)
    found = search.configure({"method": ADAMW}).training
    assert dict(found.method_options) == {"weight_decay": 0.1}
    assert not search.configure({"method": None}).training.method_options


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ((uniform(DECAY, 0.1, 0.2),), r"AdamW.weight_decay is not an option of a class .*choice\("),
        ((choice("method", None, AdamW), uniform("AdamW.decay", 0.1, 0.2)), "did you mean 'weight"),
        ((choice("model", None, GeluTransformer), whole("GeluTransformer.x", 1, 2)), "no option x"),
        ((choice("method", None, AdamW), choice(DECAY, "a", "b")), "weight_decay is 'a', but must"),
    ],
)
def test_a_wrong_option_is_refused(parameters: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Space(name="wrong", title="", parameters=parameters)


def test_the_space_of_the_docs_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILES_VARIABLE, "")
    (tmp_path / "z_loss.py").write_text(snippet("class ZLoss(", "variants"))
    (tmp_path / "z_search.py").write_text(snippet('name="z-loss"', "variants"))
    space = load_space(str(tmp_path / "z_search.py"))
    search = make_search(space, QUICK, SearchOptions(scale="quick", trials=3))
    study = optuna.create_study(sampler=FeasibleSampler(search))
    trial = study.ask()
    assert search.parameters[0].choices[1] == variant_name(f"{tmp_path / 'z_loss.py'}:ZLoss")
    sampled = trial.relative_params.keys()
    assert {"method", "label_smoothing"} <= sampled <= {"method", "ZLoss.weight", "label_smoothing"}
