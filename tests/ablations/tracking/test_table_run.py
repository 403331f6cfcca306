"""A table's run in W&B, read back from disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ablations.report.numbers import compute_numbers
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE
from ablations.tracking.table_run import track_table_run
from tests.ablations.samples import TINY, fill_table3


def test_a_table_is_one_run_with_numbers_in_columns_and_the_figures(tmp_path: Path) -> None:
    fill_table3(tmp_path)
    (tmp_path / "figures").mkdir()
    Image.new("RGB", (4, 3)).save(tmp_path / "figures" / "curves.png")
    for _ in range(2):
        track_table_run(tmp_path)
    files = sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
    assert len({file.name for file in files}) == 1  # the same run at each call
    inspect = [Path(sys.executable).with_name("wandb"), "leet", "inspect", "--json", files[-1]]
    shown = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout
    records = [json.loads(line) for line in shown.splitlines()]
    (run,) = (record["run"] for record in records if record["type"] == "run")
    assert (run["display_name"], run["job_type"]) == ("table3-tiny-table", "table")
    assert (run["run_group"], run["tags"]) == ("table3-tiny", ["table3", "tiny", "table"])
    (logged,) = (r["history"]["item"] for r in records if r["type"] == "history")
    assert logged["figures/curves._type"] == "image-file"
    (path,) = files[-1].parent.glob("files/media/table/*.table.json")
    written = json.loads(path.read_text())
    rows = [dict(zip(written["columns"], line, strict=True)) for line in written["data"]]
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
    assert one_head["paper_bleu"] == 24.9
    assert (one_head["seeds"], one_head["num_heads"]) == (2, 1)


def test_a_table_of_ones_own_has_its_changes_and_no_figures_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = (row("base"), row("hot", learning_rate_factor=2.0))
    own = Table(name="own", title="", base=BASE, rows=rows)
    claim_plan(tmp_path, make_plan(own, TINY, rows, (1,)))
    tracked: list[Any] = []
    monkeypatch.setattr(
        "experiments.tracking.track_table", lambda *found, **_: tracked.extend(found)
    )
    track_table_run(tmp_path)
    columns, lines = tracked[2:4]
    assert not [name for name in columns if "paper" in name]
    hot = dict(zip(columns, lines[1], strict=True))
    assert (hot["changes"], hot["learning_rate_factor"]) == ("learning_rate_factor=2.0", 2.0)
