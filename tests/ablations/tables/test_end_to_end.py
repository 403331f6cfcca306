"""A table of real, tiny trainings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ablations.tables.plan import load_plan
from experiments.records.result import load_result
from tests.ablations.search.test_end_to_end import call
from tests.samples import write_corpus

TABLE = """
from ablations.tables import BASE, Table, row, scale
from transformer import Transformer, folder_corpus
from transformer.config import override


class NoOp(Transformer):
    pass


MINI = scale(
    "mini", corpus=folder_corpus("numbers"), divide_widths=16, divide_layers=2, max_steps=60,
    vocab_size=61, tokens_per_batch=160, max_length=41, warmup_steps=19,
    learning_rate_factor=0.3, checkpoint_every_steps=30, precision="fp32",
)
TABLE = Table(
    name="mine", title="A change of nothing", base=BASE,
    rows=(row("base"), row("no-op", model=NoOp)), scales=(MINI,),
)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_row_that_changes_nothing_has_no_difference_to_the_last_digit(tmp_path: Path) -> None:
    write_corpus(tmp_path / "numbers")
    (tmp_path / "mine.py").write_text(TABLE)
    call(tmp_path, "ablations run mine.py --scale mini --seeds 1,2 --workers 2 --log none")
    root = tmp_path / "runs" / "mine-mini"
    results = {cell: load_result(cell.directory(root)) for cell in load_plan(root).cells}
    assert len(results) == 4
    for seed in (1, 2):
        base, same = (
            found for cell, found in results.items() if cell.seed == seed and found is not None
        )
        assert base.perplexity == same.perplexity and base.bleu == same.bleu
        assert base.test_perplexity == same.test_perplexity
    report = (root / "report.md").read_text()
    assert "1 of 1 row is within noise of the base (no-op)" in report
    assert re.search(r"\| no-op +\| +2 \|.*\| +0\.000 to 0\.000 \| +within noise \|", report)
