"""The benchmark of the preparation: its text, its figures and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from experiments.benchmark.memory import watch_peak_memory
from experiments.benchmark.preparation import (
    measure_opening,
    measure_preparation,
    measure_stages,
    multiply,
)
from tests.samples import number_pairs
from transformer.errors import InputError

PAIRS = number_pairs(101, seed=5)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    source, target = zip(*PAIRS, strict=True)
    multiply(source, target, 211, tmp_path)
    return tmp_path


def test_each_pair_of_a_multiplied_text_has_one_new_word_on_one_side(text: Path) -> None:
    sides = [
        (text / f"text.{side}").read_text(encoding="utf-8").split("\n")[:-1]
        for side in ("source", "target")
    ]
    assert [len(lines) for lines in sides] == [211, 211]
    for number, pair in enumerate(zip(*sides, strict=True)):
        new = [
            Counter(line.split()) - Counter(old.split())
            for line, old in zip(pair, PAIRS[number % 101], strict=True)
        ]
        assert [words.total() for words in new] == [number % 2 == 0, number % 2 == 1]


def test_stages_and_opening_are_measured(text: Path) -> None:
    stages = measure_stages(text, vocab_size=67, workers=1)
    assert (stages.pairs, stages.kept, stages.workers, stages.vocab_size) == (211, 211, 1, 67)
    assert list(stages.seconds) == ["clean", "vocabulary", "encode", "order"]
    assert all(seconds > 0 for seconds in stages.seconds.values())
    assert all(peak is None or peak > 2**20 for peak in stages.peak_bytes.values())
    opening = measure_opening(text / "train", 101)
    assert 0 < opening.open_seconds < opening.first_batch_seconds
    assert opening.seconds_per_batch > 0


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux says")
def test_the_memory_of_children_is_included() -> None:
    script = "held = bytearray(100 * 2**20); print(len(held), flush=True); input()"
    with watch_peak_memory() as alone:
        pass
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        with watch_peak_memory() as both:
            pass
        child.kill()
    assert alone.bytes is not None and both.bytes is not None
    assert both.bytes - alone.bytes > 99 * 2**20


def test_too_few_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--pairs is 7, but must be at least 40,000"):
        measure_preparation("cldr", 7, tmp_path / "out.json")
