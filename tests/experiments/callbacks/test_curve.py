"""``metrics.csv`` read back while it is being written."""

from __future__ import annotations

from pathlib import Path

from experiments.run.results import METRICS_FILE, valid_perplexities

HEADER = "step,loss,train_perplexity,learning_rate,gradient_norm,valid_loss,valid_perplexity\n"


def test_only_whole_lines_of_validations_count(tmp_path: Path) -> None:
    assert valid_perplexities(tmp_path) == {}
    text = f"{HEADER}50,2.5,12.2,0.001,1.5,,\n101,,,,,1.1,3.004\n211,,,,,7.0,inf\n307,,,,,1.0,2.7"
    (tmp_path / METRICS_FILE).write_text(text, encoding="utf-8")
    assert valid_perplexities(tmp_path) == {101: 3.004, 211: float("inf")}
