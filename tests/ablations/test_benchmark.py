"""The workers' overhead is measured on the same runs, and nothing is left behind."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ablations import benchmark
from ablations.benchmark import measure_overhead
from ablations.tables.scale import scale
from transformer.corpus import Corpus
from transformer.errors import InputError


@pytest.mark.parametrize(
    ("trials", "minutes", "storage", "message"),
    [
        (0, 1.0, None, "--trials is 0, but must be at least 1"),
        (3, float("nan"), None, "--minutes is nan, but must be above 0"),
        (3, 1.0, "sqlite:////nowhere/at/all", "unable to open database file"),
    ],
)
def test_unusable_arguments_are_refused_at_once(
    tmp_path: Path, trials: int, minutes: float, storage: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        measure_overhead(trials, minutes, storage, tmp_path / "out.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_both_ways_give_the_same_results(
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
    monkeypatch.setattr(benchmark, "QUICK", tiny)
    study, output = tmp_path / "study.sqlite3", tmp_path / "new" / "out.json"
    assert measure_overhead(2, 0.03, f"sqlite:///{study}", output) == 0
    found = json.loads(output.read_text())
    assert (found["trials"], found["storage"], found["same_results"]) == (2, "sqlite", True)
    assert found["ratio"] == found["fleet_seconds"] / found["reference_seconds"] > 0
    with closing(sqlite3.connect(study)) as database:
        for table in ("studies", "ablations_leases"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
