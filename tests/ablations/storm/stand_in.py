"""Stands in for training in a storm: ``python stand_in.py DIRECTORY``.

It is deterministic, writes checkpoints, resumes from the newest, and keeps the promises of
``ablations.runs.process``: the same files and exit codes, an end after a checkpoint when it is
asked to or its parent is gone, and no write into a directory that another attempt has taken over.
It imports nothing of the project, so it starts at once.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

STARTS_FILE = "starts.txt"
STOPPED = 75
_ended: list[int] = []


def main(directory: Path) -> int:
    """Train, as it were; see the exit codes of ``ablations.runs.process``."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: _ended.append(number))
    try:
        return train(directory)
    except FileNotFoundError:
        print("another attempt has taken this run over")
        return STOPPED


def train(directory: Path) -> int:
    """Go on from the newest checkpoint to the end, or until asked to stop."""
    parent = os.getppid()
    config = json.loads((directory / "config.json").read_text())
    settings = config["config"]["training"]
    last, every = settings["max_steps"], settings["checkpoint_every_steps"]
    (directory / "checkpoints").mkdir(exist_ok=True)
    step, losses = _newest(directory)
    with (directory / STARTS_FILE).open("a") as file:  # by its path: not once it is taken over
        file.write(f"{step}\n")
    while step < last:
        if _ended or os.getppid() != parent:
            _checkpoint(directory, step, losses)
            _progress(directory, "stopped", step, last)
            return STOPPED
        time.sleep(float(os.environ["STORM_STEP_SECONDS"]))
        step += 1
        losses.append(_noise(config["name"], settings["seed"], step, losses[-1:]))
        if step % every == 0 or step == last:
            _checkpoint(directory, step, losses)
            _progress(directory, "train", step, last)
    _finish(directory, config["name"], settings["seed"], losses)
    _progress(directory, "done", last, last)
    return 0


def _newest(directory: Path) -> tuple[int, list[float]]:
    """The step and the losses of the newest checkpoint."""
    found = [int(path.stem) for path in (directory / "checkpoints").glob("[0-9]*.json")]
    if not found:
        return 0, []
    step = max(found)
    return step, json.loads((directory / "checkpoints" / f"{step}.json").read_text())


def _checkpoint(directory: Path, step: int, losses: list[float]) -> None:
    _write(directory / "checkpoints" / f"{step}.json", losses)


def _progress(directory: Path, stage: str, step: int, last: int) -> None:
    progress = {"stage": stage, "step": step, "max_steps": last, "updated_at": time.time()}
    _write(directory / "progress.json", progress)


def _finish(directory: Path, name: str, seed: int, losses: list[float]) -> None:
    """The result, whose figures depend on every step."""
    template = Path(os.environ["STORM_RESULT"])
    result: dict[str, Any] = json.loads(template.read_text())
    result |= {"experiment": name, "seed": seed, "steps": len(losses)}
    result |= {"perplexity": 1 + losses[-1], "bleu": 100 * losses[-1]}
    text = "".join(f"{loss!r}\n" for loss in losses[-13:])
    (directory / "valid.hypotheses.txt").write_text(text)
    _write(directory / "result.json", result)


def _write(path: Path, value: object) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


def _noise(*what: object) -> float:
    """A number in [0, 1) that depends on all that it is made of."""
    return int(hashlib.sha256(repr(what).encode()).hexdigest()[:12], 16) / 16**12


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
