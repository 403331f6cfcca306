"""Ten proposals trained at quick, one after the other, as a script would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ablations.folder import open_folder
from ablations.proposals.ledger import Ledger
from experiments.records.progress import RunState

# The rows of a table, each a change too small to be seen.
TABLE = """
from ablations.tables import BASE, Table, row

TABLE = Table(name="t", title="", base=BASE, rows=(row("base"), row({row})))
"""
CLASSES = {
    "NoOp": "class NoOp(Transformer):\n    pass\n",
    "Rotary": "class Rotary(RotaryTransformer):\n    pass\n",
    "Frozen": (
        "class Frozen(TransformerModule):\n"
        "    def learning_rate(self, step):\n        return 1e-9\n"
    ),
}
HEAD = (
    "from transformer import Transformer, TransformerModule\n"
    "from transformer.variants.positions import RotaryTransformer\n\n\n"
)
ROWS = (
    '"clip", clip_norm=0.9',
    '"epsilon", adam_epsilon=1e-8',
    '"beta1", adam_beta1=0.89',
    '"beta2", adam_beta2=0.979',
    '"warmup", warmup_steps=510',
    '"rate", learning_rate_factor=0.51',
    '"dropout", dropout=0.102',
)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ablations", "try", *words, "--scale", "quick", "--json"]


def ask(folder: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        command(*words, "--minutes", "60"), cwd=folder, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_ten_proposals_of_which_one_helps(tmp_path: Path) -> None:
    root, verdicts = tmp_path / "runs/try-quick", dict[str, str]()
    for name, text in CLASSES.items():
        (tmp_path / "idea.py").write_text(HEAD + text)
        if name == "Rotary":
            _kill_in_the_middle(tmp_path, root)
        verdicts[name] = ask(tmp_path, "idea.py")["verdict"]
    for row in ROWS:
        (tmp_path / "idea.py").write_text(TABLE.format(row=row))
        verdicts[row.split('"')[1]] = ask(tmp_path, "idea.py")["verdict"]
    assert len(verdicts) == 10
    assert {name for name, verdict in verdicts.items() if verdict == "better"} == {"Rotary"}
    assert verdicts["Frozen"] == "worse" and verdicts["NoOp"] == "no difference"
    (tmp_path / "idea.py").write_text(HEAD + "# What rotary positions do.\n" + CLASSES["Rotary"])
    again = ask(tmp_path, "idea.py:Rotary")
    assert again["repeated"] and again["verdict"] == "better"
    assert [line.look for line in Ledger(root).tried.values()] == [*range(1, 11)]
    runs = open_folder(root).runs()
    assert {run.state for run in runs} == {RunState.DONE}
    assert len([run for run in runs if run.row == "Frozen"]) == 2  # two seeds were saved
    assert ask_adoption(tmp_path)["seeds"] == [*range(11, 21)]


def ask_adoption(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        command("Rotary", "--adopt"), cwd=folder, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def _kill_in_the_middle(folder: Path, root: Path) -> None:
    """Kill the command and all that it started, once its second seeds are in training."""
    process = subprocess.Popen(
        command("idea.py", "--minutes", "60"),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 3_000
    while not list(root.glob("Rotary/seed-[34].*/checkpoints/*")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
