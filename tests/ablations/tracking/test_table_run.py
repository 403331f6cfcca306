"""The columns of a table's run in W&B."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablations.report.numbers import compute_numbers
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE
from ablations.tracking.table_run import track_table_run
from tests.ablations.samples import TINY, fill_table3


def tracked(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict[str, Any]], Any]:
    """The rows by column, and what else the run is given."""
    calls: list[Any] = []
    monkeypatch.setattr("experiments.tracking.track_table", lambda *x, **y: calls.extend([x, y]))
    track_table_run(root)
    (_, name, columns, lines), more = calls
    return [dict(zip(columns, line, strict=True)) for line in lines], {"name": name, **more}


def test_a_table_is_numbers_in_columns_and_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_table3(tmp_path)
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "curves.png").touch()
    rows, more = tracked(tmp_path, monkeypatch)
    assert (more["name"], more["group"]) == ("table3-tiny-table", "table3-tiny")
    assert more["tags"] == ("table3", "tiny", "table") and [*more["figures"]] == ["curves"]
    rows_of_table = compute_numbers(tmp_path).rows
    assert [row["row"] for row in rows] == [row.name for row in rows_of_table]
    words = {"row", "changes", "positions", "target_language"}
    assert all(
        not isinstance(x, str) for row in rows for name, x in row.items() if name not in words
    )
    base, one_head = rows[0], rows[1]
    mean = rows_of_table[0].means["perplexity"]
    assert (base["perplexity"], base["perplexity_deviation"]) == (mean.mean, mean.deviation)
    assert (base["perplexity_difference"], base["paper_perplexity"]) == (None, 4.92)
    assert (one_head["paper_bleu"], one_head["seeds"], one_head["num_heads"]) == (24.9, 2, 1)


def test_a_table_of_ones_own_has_its_changes_and_no_figures_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (row("base"), row("hot", learning_rate_factor=2.0))
    own = Table(name="own", title="", base=BASE, rows=rows)
    claim_plan(tmp_path, make_plan(own, TINY, rows, (1,)))
    (_, hot), _ = tracked(tmp_path, monkeypatch)
    assert not [name for name in hot if "paper" in name]
    assert (hot["changes"], hot["learning_rate_factor"]) == ("learning_rate_factor=2.0", 2.0)
