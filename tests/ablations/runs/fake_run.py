"""Stands in for ``python -m ablations.runs.process``: writes the files of a run at once.

What it does is named by ``behaviour.json`` in the table's directory, which maps a cell to
``crash``, ``diverge``, ``refuse``, ``slow``, ``hang``, ``stubborn`` (it hears no signal),
``kill``, ``abort`` (a crash after the result) or ``remove`` (its directory is removed, once);
without an entry it finishes. It imports nothing of the project, so that it starts at once.
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType


def stop(_number: int, _frame: FrameType | None) -> None:
    """End as a run does after its checkpoint."""
    sys.exit(75)


def refuse_to_stop(_number: int, _frame: FrameType | None) -> None:
    """Go on as if nothing were the matter."""
    print("stubborn", flush=True)


def main(directory: Path) -> int:
    """Behave as told for this cell."""
    root = directory.parent.parent
    cell = json.loads((directory / "attempt.json").read_text())["cell"]
    behaviour = json.loads((root / "behaviour.json").read_text()).get(cell, "finish")
    with (root / "started.txt").open("a") as file:
        devices = os.environ.get("CUDA_VISIBLE_DEVICES") or "-"
        file.write(f"{cell} {devices} {os.environ['ACCUMULATE']}\n")
    if behaviour == "crash":
        print("Traceback (most recent call last):\nRuntimeError: it broke")
        return 1
    if behaviour == "diverge":
        progress = {"stage": "diverged", "step": 7, "message": "training diverged: nan"}
        (directory / "progress.json").write_text(json.dumps(progress | {"updated_at": time.time()}))
        return 1
    if behaviour == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "refuse":
        print("toy is missing: fetch it")
        return 2
    if behaviour == "remove" and (root / "started.txt").read_text().count(cell) == 1:
        shutil.rmtree(directory)
        return 2
    if behaviour == "slow":
        time.sleep(1)
    if behaviour in ("hang", "stubborn"):
        signal.signal(signal.SIGTERM, stop if behaviour == "hang" else refuse_to_stop)
        progress = {"stage": "train", "step": 40, "max_steps": 1500, "updated_at": time.time()}
        (directory / "progress.json").write_text(json.dumps(progress))
        time.sleep(120)
    result = json.loads((root / "result-template.json").read_text())
    row, _, seed = cell.partition("/seed-")
    table = result["experiment"].partition("/")[0]
    result |= {"experiment": f"{table}/{row}", "seed": int(seed)}
    (directory / "result.json").write_text(json.dumps(result))
    return 134 if behaviour == "abort" else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
