"""Stands in for training: ``python stand_in.py DIRECTORY ACCUMULATE``.

It is deterministic, writes checkpoints, resumes from the newest, and behaves like
``ablations.runs.entry``: the same files and exit codes, an end after a checkpoint on a signal or
when its parent is gone, and no write into a directory that another attempt has taken over.

``stand-ins.json`` in the directory of the runs has the seconds of a step, a result, the
perplexities of some runs by name, and for some another behaviour: ``crash``, ``diverge`` (at step
7), ``refuse``, ``block`` (its text is missing), ``kill``, ``leave`` (it stops though nobody asked),
``slow``, ``hang``, ``stubborn`` (it ignores signals), ``abort`` (a crash after the result),
``remove`` (its directory is removed, once) or ``vanish`` (each time). It imports nothing of the
project, so it starts at once.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

SETTINGS_FILE = "stand-ins.json"
STARTED_FILE = "started.txt"  # a line for each start of a run
STARTS_FILE = "starts.txt"  # in a run's directory: the step from which each attempt continued
_STOPPED = 75
_ended: list[int] = []


def main(directory: Path, accumulate: str) -> int:
    """Behave as the settings say; the exit codes are those of ``ablations.runs.entry``."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: _ended.append(number))
    try:
        root = directory.parents[1]
        cell = json.loads((directory / "attempt.json").read_text())["cell"]
        settings = json.loads((root / SETTINGS_FILE).read_text())
        with (root / STARTED_FILE).open("a") as file:
            devices = os.environ.get("CUDA_VISIBLE_DEVICES") or "-"
            file.write(f"{cell} {devices} {accumulate}\n")
        behaviour = settings["behaviour"].get(cell, "")
        code = misbehave(directory, cell, behaviour)
        code = train(directory, cell, settings) if code is None else code
        return 134 if (code, behaviour) == (0, "abort") else code
    except FileNotFoundError:
        print("another attempt has taken this run over")
        return _STOPPED


def misbehave(directory: Path, cell: str, behaviour: str) -> int | None:
    """The exit code of a run that does not train; None if it does so after all."""
    if behaviour == "crash":
        print("Traceback (most recent call last):\nRuntimeError: it broke")
        return 1
    if behaviour == "diverge":
        config = json.loads((directory / "config.json").read_text())
        result = json.loads((directory.parents[1] / SETTINGS_FILE).read_text())["result"]
        result |= {"experiment": config["name"], "seed": config["config"]["training"]["seed"]}
        result |= {"perplexity": "Infinity", "bleu": None, "steps": 7, "diverged_at": 7}
        _write(directory / "result.json", result)
        _progress(directory, "diverged", 7, 99, message="training diverged: nan")
        return 1
    if behaviour == "refuse":
        print("toy is missing: fetch it")
        return 2
    if behaviour == "block":
        print("text.en does not exist")
        return 74
    if behaviour == "leave":
        return _STOPPED
    if behaviour == "real-time signal":
        os.kill(os.getpid(), 40)
    if behaviour == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    starts = (directory.parents[1] / STARTED_FILE).read_text().count(f"{cell} ")
    if behaviour == "vanish" or (behaviour == "remove" and starts == 1):
        shutil.rmtree(directory)
        return 2
    if behaviour == "slow":
        time.sleep(1)
    if behaviour in ("hang", "stubborn"):
        parent = os.getppid()
        _progress(directory, "train", 40, 1_500)
        while behaviour == "stubborn" or not (_ended or os.getppid() != parent):
            if _ended:
                print("stubborn", flush=True)
            time.sleep(0.02)
        return _STOPPED
    return None


def train(directory: Path, cell: str, settings: dict[str, Any]) -> int:
    """Continue from the newest checkpoint to the end, or until a signal."""
    parent = os.getppid()
    config = json.loads((directory / "config.json").read_text())
    training = config["config"]["training"]
    last, every = training["max_steps"], training["checkpoint_every_steps"]
    ignored = {"average_checkpoints", "also_average", "threads", "precision"}
    of_training = {name: training[name] for name in training.keys() - ignored}
    settings_of_training = config["config"]["model"], sorted(of_training.items())
    if (directory / "result.json").exists():  # of another run whose training diverged
        _progress(directory, "diverged", 0, last)
        return 1
    (directory / "checkpoints").mkdir(exist_ok=True)
    step, losses = _newest(directory)
    with (directory / STARTS_FILE).open("a") as file:  # by its path: not once it is taken over
        file.write(f"{step}\n")
    while step < last:
        if _ended or os.getppid() != parent:
            _checkpoint(directory, step, losses)
            _progress(directory, "stopped", step, last)
            return _STOPPED
        time.sleep(settings["step_seconds"])
        step += 1
        losses.append(_noise(settings_of_training, step, losses[-1:]))
        if step % every == 0 or step == last:
            _checkpoint(directory, step, losses)
            _progress(directory, "train", step, last)
    # The figures depend on every step.
    result = settings["result"] | {"experiment": config["name"], "seed": training["seed"]}
    result |= {"steps": step, "perplexity": 1 + losses[-1], "bleu": 100 * losses[-1]}
    if cell in settings["perplexities"]:
        result["perplexity"] = settings["perplexities"][cell]
    text = "".join(f"{loss!r}\n" for loss in losses[-13:])
    (directory / "valid.hypotheses.txt").write_text(text)
    _write(directory / "result.json", result)
    _progress(directory, "done", last, last)
    return 0


def _newest(directory: Path) -> tuple[int, list[float]]:
    """The step and the losses of the newest checkpoint."""
    found = sorted((directory / "checkpoints").glob("step-*.ckpt"))
    return (int(found[-1].stem[5:]), losses_of(found[-1])) if found else (0, [])


def losses_of(checkpoint: Path) -> list[float]:
    """The losses in a checkpoint, which is a zip file like torch's."""
    with zipfile.ZipFile(checkpoint) as archive:
        return json.loads(archive.read("losses.json"))


def _checkpoint(directory: Path, step: int, losses: list[float]) -> None:
    path = directory / "checkpoints" / f"step-{step:08d}.ckpt"
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with zipfile.ZipFile(temporary, "w") as archive:
        archive.writestr("losses.json", json.dumps(losses))
    temporary.replace(path)


def _progress(directory: Path, stage: str, step: int, last: int, message: str = "") -> None:
    progress = {"stage": stage, "step": step, "max_steps": last, "message": message}
    _write(directory / "progress.json", progress | {"updated_at": time.time()})


def _write(path: Path, value: object) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value))
    temporary.replace(path)


def _noise(*what: object) -> float:
    """A number in [0, 1) that depends on all that it is made of."""
    return int(hashlib.sha256(repr(what).encode()).hexdigest()[:12], 16) / 16**12


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
