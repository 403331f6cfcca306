"""A table's run in W&B."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablations.tracking.table_run import track_table_run
from tests.ablations.samples import fill_table3


def test_it_has_the_finished_runs_and_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_table3(tmp_path)
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "curves.png").touch()
    calls: list[Any] = []
    monkeypatch.setattr("experiments.tracking.track_table", lambda *x, **y: calls.extend([x, y]))
    track_table_run(tmp_path)
    (_, name, heads, lines), more = calls
    assert (name, more["group"]) == ("table3-tiny-table", "table3-tiny")
    assert more["tags"] == ("table3", "tiny", "table") and [*more["figures"]] == ["curves"]
    columns = dict(zip(heads, zip(*lines, strict=True), strict=True))
    assert columns["row"][:3] == ("base", "base", "A-h1") and columns["paper_bleu"][2] == 24.9
    for values in columns.values():  # W&B takes one type in a column
        assert len({isinstance(x, str) for x in values if x is not None}) <= 1
