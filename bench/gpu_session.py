"""Run a plan on a GPU in sessions of minutes.

Each call ends by itself in time. Finished work, and the newest checkpoints of unfinished work, go
into one archive from which the next call starts, on this machine or a fresh one.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.runs.options import count_cores, gpus
from ablations.tables.table3 import TABLE as TABLE3
from bench import end_in_one_line
from bench.mps import mps
from bench.session_archive import pack, unfinished, unpack
from experiments.records.result import RESULT_FILE
from transformer.errors import InputError
from transformer.python_files import load_file

ROOT = Path(__file__).parents[1]
_TESTS = ROOT / "tests" / "gpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A command of ``python -m``, which continues where it was when it is given again.

    Attributes:
        name: the name of the stage
        results: the name of its results in the folder of the work, which stages may share
        words: those after ``-m``; ``{results}`` stands for the path of its results, ``{minutes}``
            for what is left
        is_table: whether it drives runs, which share each GPU, as many as there are cores for it;
            any other stage begins from the start at each call
    """

    name: str
    results: str
    words: tuple[str, ...]
    is_table: bool = True


def table(name: str, words: str, results: str = "") -> Stage:
    """The runs of a table, by the words after ``ablations run``; metrics go to files only."""
    command = ("ablations", "run", *shlex.split(words), "--log", "none", "--directory", "{results}")
    return Stage(name=name, results=results or name, words=command)


def tests_of_the_gpu() -> Stage:
    """The tests and measurements of ``make test-gpu``; those that passed are not run again."""
    where = ("-p", "no:cacheprovider", "-c", str(_TESTS / "pytest.ini"), str(_TESTS))
    options = ("--results", "{results}", "--minutes", "{minutes}")
    words = ("pytest", *where, *options)
    return Stage(name="tests", results="gpu.jsonl", words=words, is_table=False)


_FOUR_LAYERS, _NEWS = (
    shlex.quote(str(ROOT / "bench" / "tables" / name))
    for name in ("table4_four_layers.py", "table3_news.py")
)
_TABLE3 = "table3 --scale small --precision fp32 --rows"
_ROWS = ",".join(row.name for row in TABLE3.rows if row.name != "big")  # the longest
# What is worth most comes first.
STAGES = (
    tests_of_the_gpu(),
    table("table3-small", f"{_TABLE3} {_ROWS} --seeds 1-10", "table3-small-fp32"),
    table("table3-small-big", f"{_TABLE3} big --seeds 1-10", "table3-small-fp32"),
    table("table4-four-layers", f"{_FOUR_LAYERS} --scale four-layers --seeds 1,2"),
    table("table3-news", f"{_NEWS} --scale news --seeds 1"),
)
_DONE_FILE = "done.json"
# Seconds: the least that a stage is begun for, and before the end for checkpoints and for packing.
_SHORTEST, _TO_STOP, _TO_PACK = 45.0, 45.0, 20.0
_MOMENT = 0.5
_BEGAN = time.monotonic()


class Session:
    """One call.

    Args:
        folder: the folder of the work
        data: the working directory of all commands; its folder ``mirror`` has downloads
        seconds: the time within which the process ends
    """

    def __init__(self, folder: Path, data: Path, seconds: float) -> None:
        self.folder, self._data = folder, data
        self._ends_at = _BEGAN + seconds
        self._is_stopped = False
        folder.mkdir(parents=True, exist_ok=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self._is_stopped = True

    @property
    def left(self) -> float:
        """Seconds until stages are stopped."""
        return 0.0 if self._is_stopped else self._ends_at - _TO_STOP - time.monotonic()

    def run(self, stages: Sequence[Stage]) -> None:
        """Carry out the stages that are left."""
        done = self.done
        for stage in stages:
            if stage.name in done or self.left < _SHORTEST:
                continue
            print(f"== {stage.name}, {self.left:.0f} s left", flush=True)
            code = self._carry_out(stage)
            print(f"== {stage.name} ended with {code}", flush=True)
            if code == 0 and stage.is_table:
                done = [*done, stage.name]
                (self.folder / _DONE_FILE).write_text(json.dumps(done), encoding="utf-8")

    @property
    def done(self) -> list[str]:
        """The names of the stages that are done."""
        path = self.folder / _DONE_FILE
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []

    def _carry_out(self, stage: Stage) -> int:
        """Run a stage, stop it in time, and return its exit code."""
        results, minutes = str(self.folder / stage.results), f"{self.left / 60:.2f}"
        words = [word.format(results=results, minutes=minutes) for word in stage.words]
        if stage.is_table and (devices := len(gpus())):
            words += ["--trials-per-device", str(max(1, count_cores() // devices))]
        with mps() if stage.is_table else nullcontext(dict(os.environ)) as environment:
            path = f"{ROOT}{os.pathsep}{environment.get('PYTHONPATH', '')}"
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=self._data,
                env={"DATA_MIRROR": str(self._data / "mirror"), **environment, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # or Ctrl-C would reach it too
            )
            return self._wait(process)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Stop the process when the time is up, and kill it if it does not end."""
        while self.left > 0:
            try:
                return process.wait(_MOMENT)
            except subprocess.TimeoutExpired:
                pass  # look at the time again
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(_TO_STOP - _TO_PACK)
        except subprocess.TimeoutExpired:
            process.kill()  # its runs end with it
            return process.wait()

    def summary(self, stages: Sequence[Stage]) -> Iterator[str]:
        """A line for each stage."""
        for stage in stages:
            results = self.folder / stage.results
            finished = len([*results.glob(f"*/seed-*/{RESULT_FILE}")])
            begun = len([*unfinished(results)])
            if stage.name in self.done:
                state = f"done, {finished} runs"
            elif not results.exists():
                state = "not begun"
            elif stage.is_table:
                state = f"{finished} runs finished, {begun} begun"
            else:
                state = "begun"
            yield f"{stage.name}: {state}"


PARSER = argparse.ArgumentParser(prog="python -m bench.gpu_session", description=__doc__)
_add: Any = PARSER.add_argument
_add("--minutes", type=float, default=9.0, help="minutes until this call has ended (default: 9)")
_add("--state", type=Path, required=True, help="archive of the work, .tar.xz; read if it exists")
_add("--state-mib", type=float, default=15.5, help="largest size of the archive (default: 15.5)")
_add("--data", type=Path, required=True, help="working directory: a folder, or a .tar.xz of one")
_add("--work", type=Path, default=Path("runs/session"), help="results (default: runs/session)")
_add("--plan", type=Path, help="Python file with other STAGES")
_add("--only", nargs="+", metavar="STAGE", help="names of the stages to carry out (default: all)")


def main() -> None:
    """Unpack, carry out, pack."""
    given = PARSER.parse_args()
    stages: tuple[Stage, ...] = load_file(given.plan, "plan").STAGES if given.plan else STAGES
    names = [stage.name for stage in stages]
    if unknown := {*(given.only or ())} - {*names}:
        raise InputError(f"no stage {', '.join(unknown)}; there are {', '.join(names)}")
    if not given.data.exists():
        raise InputError(f"there is no {given.data}")
    if not given.state.absolute().parent.is_dir():
        raise InputError(f"there is no folder {given.state.parent} for the archive")
    folder, data, state = (path.absolute() for path in (given.work, given.data, given.state))
    if data.is_file():
        archive, data = data, folder.with_name(f"{folder.name}-data")
        if not data.exists():
            unpack(archive, data)
    if state.exists() and not folder.exists():
        unpack(state, folder)
    session = Session(folder, data, 60 * given.minutes)
    session.run([stage for stage in stages if given.only is None or stage.name in given.only])
    for line in pack(folder, state, int(given.state_mib * 2**20)):
        print(line)
    print("\n".join(session.summary(stages)))


if __name__ == "__main__":
    end_in_one_line(main)
