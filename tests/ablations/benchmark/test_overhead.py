"""The benchmark as a whole: small and real, and what it refuses."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from ablations.benchmark import overhead
from ablations.benchmark.overhead import measure_overhead
from ablations.tables.scale import scale
from transformer.config import Corpus
from transformer.errors import InputError


@pytest.mark.parametrize(
    ("trials", "minutes", "storage", "message"),
    [
        (1, 1.0, None, "--trials is 1, but must be at least 2: the first is a case apart"),
        (3, 0.0, None, "--minutes is 0, but must be above 0"),
        (3, float("nan"), None, "--minutes is nan, but must be above 0"),
        (3, float("inf"), None, "--minutes is inf, but must be above 0"),
        (3, 1.0, "mysql://host/name", "--storage is no URL|--storage names 'mysql'"),
        (3, 1.0, "sqlite:////nowhere/at/all", "unable to open database file"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(
    tmp_path: Path, trials: int, minutes: float, storage: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        measure_overhead(trials, minutes, storage, tmp_path / "out.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_fleet_and_a_process_without_it_do_the_same_and_are_compared(
    tmp_path: Path, files_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    tiny = scale(
        "tiny",
        corpus=files_corpus,
        divide_widths=16,
        divide_layers=6,
        vocab_size=61,
        tokens_per_batch=101,
        max_length=41,
        warmup_steps=13,
    )
    monkeypatch.setattr(overhead, "QUICK", tiny)
    study, output = tmp_path / "study.sqlite3", tmp_path / "new" / "out.json"
    assert measure_overhead(2, 0.03, f"sqlite:///{study}", output) == 0
    found = json.loads(output.read_text())
    assert (found["trials"], found["storage"], found["wandb"]) == (2, "sqlite", "offline")
    assert found["same_results"]
    for way in ("fleet", "reference"):
        times = found[way]
        assert 0 < sum(times["run_seconds"]) <= times["seconds"]
        assert len(times["train_seconds"]) == 2
        assert all(seconds > 0 for seconds in times["first_step_seconds"] if seconds is not None)
    assert found["ratio"] == found["fleet"]["seconds"] / found["reference"]["seconds"]
    assert found["closing_seconds"] > 0 and found["turn_seconds"] > 0
    with sqlite3.connect(study) as database:
        for table in ("studies", "ablations_leases"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    database.close()
