"""``python -m ablations search`` with real, tiny trainings."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ablations.search.claim import claim_search
from ablations.search.search import load_search, prepare_search
from ablations.search.trials import best, read_trials
from experiments.run.experiment import load_experiment
from tests.samples import write_corpus
from transformer.config import to_dict
from transformer.files import write_json

ROOT = Path(__file__).parents[3]
SPACE = """
from ablations.search import Space, scale, uniform, whole
from transformer import folder_corpus
from pathlib import Path

SPACE = Space(
    name="lr",
    title="Learning rate",
    parameters=(
        uniform("learning_rate_factor", 0.01, 4.0, log=True),
        whole("warmup_steps", 4_000, 40_000, log=True),
    ),
    scales=(
        scale(
            "mini",
            corpus=folder_corpus(Path(__file__).parent / "numbers"),
            divide_widths=16,
            divide_layers=2,
            max_steps=90,
            vocab_size=61,
            tokens_per_batch=160,
            max_length=41,
            warmup_steps=23,
            learning_rate_factor=0.3,
            checkpoint_every_steps=30,
            log_every_steps=10,
            precision="fp32",
        ),
    ),
)
"""


def ablations(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in ``place``, with a heartbeat that sees each validation."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
        "ABLATIONS_HEARTBEAT_SECONDS": "1",
        "ABLATIONS_GRACE_SECONDS": "20",
    }
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a space and a corpus of a user's own."""
    write_corpus(tmp_path / "numbers")
    (tmp_path / "space.py").write_text(SPACE)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_search_is_carried_out_resumed_extended_and_its_best_trained(place: Path) -> None:
    command = ("ablations", "search", "space.py", "--scale", "mini", "--workers", "2")
    first = ablations(place, *command, "--trials", "4")
    assert first.returncode == 0, first.stderr
    root = place / "runs" / "lr-mini"
    four = read_trials(load_search(root), root)
    assert all(trial.state in ("done", "pruned") for trial in four)
    (root / "study.sqlite3").unlink()
    more = ablations(place, *command, "--trials", "6", "--confirm", "1")
    assert more.returncode == 0, more.stderr
    trials = read_trials(load_search(root), root)
    assert trials[:4] == four
    assert all(trial.has_ended for trial in trials)
    found = best(trials)
    assert found is not None
    assert f"The best is {found.name}" in more.stdout
    again = root / "confirm" / found.name / "seed-2" / "result.json"
    assert again.is_file() and "Trained again with other seeds" in more.stdout
    trained = ablations(
        place, "experiments", "train", "lr-mini-best", "--directory", "again", "--max-steps", "3"
    )
    assert trained.returncode == 0, trained.stderr
    assert load_experiment(place / "again").config == load_experiment(root / found.name).config


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_trial_of_two_ranks_is_pruned_as_a_whole(place: Path) -> None:
    root = place / "runs" / "lr-mini"
    claimed = claim_search(root, prepare_search(str(place / "space.py"), "mini", trials=5))
    # Hyperband's brackets go by the study's name.
    write_json(root / "search.json", to_dict(replace(claimed, study="lr-mini")))
    done = ablations(
        place,
        *("ablations", "search", "space.py", "--scale", "mini", "--trials", "5"),
        *("--workers", "1", "--devices-per-trial", "2"),
    )
    assert done.returncode == 0, done.stderr
    trials = read_trials(load_search(root), root)
    pruned = [trial for trial in trials if trial.state == "pruned"]
    assert pruned and all(trial.step < 90 for trial in pruned)
    finished = [trial.result for trial in trials if trial.result]
    assert finished and all(result.devices == 2 for result in finished)
    assert not list(root.glob("*.attempt-*"))
    for trial in pruned:
        assert list((root / trial.name / "checkpoints").iterdir())
