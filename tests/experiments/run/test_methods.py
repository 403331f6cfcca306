"""Runs with a method: the examples of the docs, trained, stopped and resumed, and scored."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from experiments.catalog.settings import with_settings
from experiments.evaluate.trained import load_trained
from experiments.records.experiment import Experiment, Limits, load_experiment
from experiments.records.outputs import read_metrics
from experiments.run import run
from tests.experiments.conftest import Command
from tests.experiments.samples import assert_same_end, last_checkpoint, outcome, tiny_experiment
from tests.samples import all_but_first_slow
from tests.test_readme import snippet
from transformer.config import override
from transformer.files import read_json
from transformer.variant import FILES_VARIABLE

EXAMPLES = ("WarmupStableDecay", "ZLoss", "TwoRates", "RDrop", "MovingAverage")
# Methods of the project, each with what it needs to do in twenty steps all that it does.
OWN = {
    "nadam:NAdamW": (),
    "nadam:CosineCycles": ("warmup_steps=3",),
    "lion:Lion": (),
    "schedule_free:ScheduleFree": (),
    "soap:Soap": ("Soap.every=3",),
    "averages:LatestWeights": ("LatestWeights.k=3", "LatestWeights.every=0.15"),
}
MUON = "transformer.variants.optimizers:MuonTransformer@ff84ac14"


@pytest.fixture
def twenty(folder: Path) -> Experiment:
    """Twenty steps, with a validation and a checkpoint in between."""
    return tiny_experiment(folder, max_steps=20, validate_every_steps=10, average_checkpoints=1)


def of_method(experiment: Experiment, method: str, *settings: str) -> Experiment:
    found = with_settings(experiment, [f"method={method}", *settings])
    return dataclasses.replace(found, name=experiment.name)


@pytest.mark.parametrize("name", all_but_first_slow(EXAMPLES))
def test_each_method_of_the_docs_trains_and_resumes_bit_for_bit(
    name: str, twenty: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FILES_VARIABLE, "")
    path = tmp_path / f"{name.lower()}_example.py"
    path.write_text(snippet(f"class {name}(", "variants"))
    experiment = of_method(twenty, f"{path}:{name}")
    run(experiment, tmp_path / "whole")
    run(experiment, tmp_path / "stopped", limits=Limits(max_steps=11))
    run(experiment, tmp_path / "stopped")
    assert_same_end(tmp_path / "stopped", tmp_path / "whole")
    assert path.name in read_json(tmp_path / "whole" / "source.json")["files"][path.stem]
    run(twenty, tmp_path / "paper")
    weights, others = (last_checkpoint(tmp_path / x)["state_dict"] for x in ("whole", "paper"))
    differs = any(not torch.equal(weights[x], others[x]) for x in others)
    assert differs == (name != "MovingAverage")
    if name == "MovingAverage":
        scored = load_trained(tmp_path / "whole").model.state_dict()
        for key, weight in scored.items():
            torch.testing.assert_close(weight, weights[f"average.{key}"], rtol=0, atol=0)
        assert not torch.equal(scored["embedding.weight"], weights["model.embedding.weight"])
    if name == "WarmupStableDecay":
        rates = [float(line[3]) for line in read_metrics(tmp_path / "whole") if line[3]]
        expected = [min(step / 13, 1.0, (21 - step) / 4) * 1e-3 for step in range(1, 21)]
        assert rates == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", all_but_first_slow(OWN))
def test_each_method_of_the_project_trains_and_resumes_bit_for_bit(
    name: str, twenty: Experiment, tmp_path: Path
) -> None:
    experiment = of_method(twenty, f"transformer.variants.{name}", *OWN[name])
    run(experiment, tmp_path / "whole")
    run(experiment, tmp_path / "stopped", limits=Limits(max_steps=11))
    run(experiment, tmp_path / "stopped")
    assert_same_end(tmp_path / "stopped", tmp_path / "whole")
    end = last_checkpoint(tmp_path / "whole")
    run(twenty, tmp_path / "paper")
    papers = last_checkpoint(tmp_path / "paper")["state_dict"]
    is_paper = all(torch.equal(end["state_dict"][key], papers[key]) for key in papers)
    assert is_paper == (name == "averages:LatestWeights")
    scored = end.get("scored_weights")
    assert (scored is not None) == name.startswith(("averages", "schedule_free"))
    if scored is None:
        return
    model = load_trained(tmp_path / "whole").model.state_dict()
    for key, weight in model.items():
        torch.testing.assert_close(weight, scored[key], rtol=0, atol=0)
    key = "embedding.weight"
    assert not torch.equal(scored[key], end["state_dict"][f"model.{key}"])


@pytest.mark.slow
def test_a_run_with_the_name_of_an_earlier_version_goes_on(
    twenty: Experiment, tmp_path: Path, call: Command
) -> None:
    now = of_method(twenty, "transformer.variants.optimizers:Muon")
    old = dataclasses.replace(twenty, config=override(twenty.config, model=MUON))
    run(now, tmp_path / "now")
    run(old, tmp_path / "old", limits=Limits(max_steps=11))
    run(old, tmp_path / "old")
    assert load_experiment(tmp_path / "old").config.model.model == MUON
    old_end, new_end = (last_checkpoint(tmp_path / name) for name in ("old", "now"))
    torch.testing.assert_close(old_end["state_dict"], new_end["state_dict"], rtol=0, atol=0)
    assert outcome(tmp_path / "old") == outcome(tmp_path / "now")
    assert call("evaluate", tmp_path / "old", "--split", "valid").code == 0
