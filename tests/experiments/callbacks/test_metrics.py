"""``metrics.csv`` when a run is resumed, and read while it is being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.callbacks.metrics import MetricsCsv
from experiments.records.outputs import METRICS_FILE, valid_perplexities

_HEADER = "step,loss,train_perplexity,learning_rate,gradient_norm,valid_loss,valid_perplexity\n"
_ROWS = ["10,4.1,60,0.1,1.5,,\n", "20,3.9,50,0.2,1.4,,\n", "20,,,,,3.8,45\n", "30,3.7,40,0.3,1,,\n"]


@pytest.mark.parametrize(
    ("before", "step", "kept"),
    [
        (None, 0, []),
        ("", 0, []),
        (_HEADER, 0, []),
        (_HEADER + "".join(_ROWS), 0, []),
        (_HEADER + "".join(_ROWS), 20, _ROWS[:3]),
        (_HEADER + "".join(_ROWS), 25, _ROWS[:3]),
        (_HEADER + "".join(_ROWS), 30, _ROWS),
    ],
)
def test_lines_after_the_resumed_step_are_dropped(
    before: str | None, step: int, kept: list[str], tmp_path: Path
):
    path = tmp_path / "metrics.csv"
    if before is not None:
        path.write_text(before)
    MetricsCsv(tmp_path, every=10, resumed_step=step)
    assert path.read_text().splitlines() == (_HEADER + "".join(kept)).splitlines()


@pytest.mark.parametrize(
    ("damaged", "lines", "kept"),
    [
        ((_HEADER + "".join(_ROWS)[:-20]).encode(), 1, _ROWS[:2]),  # the disk was full
        ((_HEADER + "".join(_ROWS[:3]) + "3").encode(), 1, _ROWS[:3]),
        (_HEADER[:20].encode(), 1, []),
        (b"\0" * 300, 1, []),  # a power cut
        ((_HEADER + "".join(_ROWS[:3])).encode() + b"\0" * 18, 1, _ROWS[:3]),
        ((_HEADER + "".join(_ROWS)).encode().replace(b"3.9", b"\xff.9"), 1, [_ROWS[0], *_ROWS[2:]]),
        ((_HEADER + "".join(_ROWS)).encode().replace(b"20,", b"2x,"), 2, [_ROWS[0], _ROWS[3]]),
        ((_HEADER + _ROWS[0]).encode() + b'"\n10,4\n20,\n', 3, _ROWS[:1]),
    ],
)
def test_damaged_lines_are_dropped_with_one_warning(
    damaged: bytes, lines: int, kept: list[str], tmp_path: Path
):
    path = tmp_path / "metrics.csv"
    path.write_bytes(damaged)
    with pytest.warns(UserWarning, match=rf"metrics.csv: {lines} damaged line") as warned:
        MetricsCsv(tmp_path, every=10, resumed_step=30)
    assert len(warned) == 1
    assert path.read_text().splitlines() == (_HEADER + "".join(kept)).splitlines()
    assert set(valid_perplexities(tmp_path)) <= {20}


def test_only_complete_lines_of_validations_are_read(tmp_path: Path):
    assert valid_perplexities(tmp_path) == {}
    lines = "50,2.5,12.2,0.001,1.5,,\n101,,,,,1.1,3.004\n211,,,,,7.0,inf\n307,,,,,1.0,2.7"
    (tmp_path / METRICS_FILE).write_text(_HEADER + lines, encoding="utf-8")
    assert valid_perplexities(tmp_path) == {101: 3.004, 211: float("inf")}
