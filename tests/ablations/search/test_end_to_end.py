"""``python -m ablations search`` with real, tiny trainings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ablations.folder import SearchFolder
from ablations.search.trials import best
from experiments.records.experiment import load_experiment
from tests.ablations.samples import Call, prepare_stand_ins, started
from tests.samples import write_corpus

ROOT = Path(__file__).parents[3]
SPACE = """
from ablations.search import Space, scale, uniform, whole
from transformer import folder_corpus

SPACE = Space(
    name="lr",
    title="Learning rate",
    parameters=(
        uniform("learning_rate_factor", 0.01, 4.0, log=True),
        whole("warmup_steps", 4_000, 40_000, log=True),
    ),
    scales=(
        scale(
            "mini", corpus=folder_corpus("numbers"), divide_widths=16, divide_layers=2,
            max_steps=90, vocab_size=61, tokens_per_batch=160, max_length=41,
            warmup_steps=23, learning_rate_factor=0.3, checkpoint_every_steps=30, precision="fp32",
        ),
    ),
)
"""


def run_in(place: Path, arguments: str) -> str:
    """What a command line prints that succeeds in ``place``, on the CPU alone."""
    ended = subprocess.run(
        [sys.executable, "-m", *arguments.split()],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_a_search_and_the_training_of_its_best_with_stand_ins(
    out: Path, call: Call, tmp_path: Path
) -> None:
    """As the test of real trainings below, which takes minutes."""
    write_corpus(tmp_path / "numbers")
    (tmp_path / "space.py").write_text(SPACE)
    prepare_stand_ins(tmp_path, {})  # of trials, whose folders are one level higher than rows'
    prepare_stand_ins(out / "confirm", {})
    search = "search space.py --scale mini --pruner none --workers 1 --directory out --log none"
    assert call(f"{search} --trials 2")[0] == 0
    code, shown = call(f"{search} --trials 3 --confirm 1")
    trials = SearchFolder(out).trials()
    found = best(trials)
    assert code == 0 and [trial.state for trial in trials] == 3 * ["done"]
    assert found is not None and f"The best is {found.name}" in shown
    assert "Trained again with other seeds" in shown
    assert {*started(out / "confirm")} == {
        f"{row}/seed-{seed}" for row in ("base", found.name) for seed in (2, 3, 4)
    }
    before = started(tmp_path), started(out / "confirm")
    assert call(f"{search} --trials 3 --confirm 1")[0] == 0
    assert (started(tmp_path), started(out / "confirm")) == before


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_search_is_carried_out_resumed_extended_and_its_best_trained(tmp_path: Path) -> None:
    write_corpus(tmp_path / "numbers")
    (tmp_path / "space.py").write_text(SPACE)
    search = "ablations search space.py --scale mini --workers 2"
    run_in(tmp_path, f"{search} --trials 4")
    root = tmp_path / "runs" / "lr-mini"
    four = SearchFolder(root).trials()
    assert all(trial.state in ("done", "pruned") for trial in four)
    (root / "study.log").unlink()
    said = run_in(tmp_path, f"{search} --trials 6 --confirm 1")
    trials = SearchFolder(root).trials()
    assert trials[:4] == four
    assert all(trial.state in ("done", "pruned") for trial in trials)
    found = best(trials)
    assert found is not None
    assert f"The best is {found.name}" in said
    again = list((root / "confirm").glob("trial-*/seed-2/result.json"))
    assert len(again) == 1 and "Trained again with other seeds" in said
    run_in(tmp_path, "experiments train runs/lr-mini/best.json --directory again --max-steps 3")
    assert load_experiment(tmp_path / "again").config == load_experiment(root / found.name).config
