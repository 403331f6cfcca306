"""A table of real, tiny trainings."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ablations.tables.plan_file import load_plan
from experiments.records.result import load_result
from tests.ablations.search.test_end_to_end import run_in
from tests.experiments.run.test_methods import EXAMPLES
from tests.samples import write_corpus
from tests.test_readme import snippet

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


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_row_that_changes_nothing_has_no_difference_to_the_last_digit(tmp_path: Path) -> None:
    write_corpus(tmp_path / "numbers")
    (tmp_path / "mine.py").write_text(TABLE)
    run_in(tmp_path, "ablations run mine.py --scale mini --seeds 1,2 --workers 2 --log none")
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


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_method_of_the_docs_is_trained_at_quick_though_its_driver_is_killed(
    tmp_path: Path,
) -> None:
    rows = "".join(f'row("{name}", method={name}), ' for name in EXAMPLES)
    code = [snippet(f"class {name}(", "variants") for name in EXAMPLES]
    code += ["from ablations.tables import BASE, Table, row"]
    code += [f'TABLE = Table(name="methods", title="", base=BASE, rows=(row("base"), {rows}))']
    (tmp_path / "methods.py").write_text("\n\n".join(code))
    command = "ablations run methods.py --scale quick --seeds 1,2 --workers 2 --log none"
    root = tmp_path / "runs" / "methods-quick"
    for _ in range(2):  # in the first runs, and in those after them
        begun = set(root.glob("*/*/checkpoints/*.ckpt"))
        driver = subprocess.Popen(
            [sys.executable, "-m", *command.split()], cwd=tmp_path, stdout=subprocess.DEVNULL
        )
        while set(root.glob("*/*/checkpoints/*.ckpt")) <= begun and driver.poll() is None:
            time.sleep(0.2)
        driver.send_signal(signal.SIGKILL)
        assert driver.wait() == -signal.SIGKILL
    run_in(tmp_path, command)
    results = [load_result(cell.directory(root)) for cell in load_plan(root).cells]
    assert len(results) == 12
    for result in results:
        assert result is not None and result.steps == 1_600 and result.perplexity < 2
