"""Whatever lies in a folder of somebody else's, each command says so or does without it.

A folder is sound but for one thing: in place of a file or a folder is a link to one of the user's
own, a pipe, a folder, and so on. No command hangs, ends in a traceback, shows or copies what the
link leads to, changes it, or sends a command to the terminal.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ablations import cli as ablations_cli
from ablations.dashboard.page import Page
from ablations.folder import TableFolder
from ablations.runs import process
from ablations.runs.lock import WHOLE, lock_runs
from ablations.tables.plan_file import claim_plan
from ablations.tables.table import Cell
from experiments import cli as experiments_cli
from experiments.figures.render import script
from experiments.records.attempt import Attempt, write_attempt
from experiments.records.checksums import record_checksums
from experiments.records.ownership import claim
from experiments.records.progress import Progress, RunState, write_progress
from experiments.records.result import save_result
from experiments.run import run
from tests.ablations.samples import leave_curve, result, small_plan
from tests.experiments.samples import tiny_experiment
from tests.samples import write_corpus
from transformer.files import write_json

# In each text file of the folder but CSV and checksums, and what the user's own files have instead.
TOKEN, SECRET = b"TOKEN", b"SECRET"
COMMAND = {True: rb"\u001b]0;TITLE\u0007", False: b"\x1b]0;TITLE\x07"}  # in JSON, and elsewhere
SECONDS = 60  # on a busy machine
BASE, NARROW = Cell("base", 1), Cell("narrow", 1)
TABLE_FILE = "from tests.ablations.samples import SMALL_TABLE as TABLE\n"

Make = Callable[[Path, Path], object]
"""Puts something strange at a path; the second is the user's own file or folder."""


def _own(path: Path, secret: Path) -> None:
    """Move what is there to the user, and link to it."""
    shutil.move(path, secret)
    for each in [x for x in (secret, *secret.rglob("*")) if x.is_file()]:
        each.write_bytes(each.read_bytes().replace(TOKEN, SECRET))
    path.symlink_to(secret)


def _instead(make: Callable[[Path], object]) -> Make:
    def put(path: Path, _: Path) -> None:
        path.unlink(missing_ok=True)
        make(path)

    return put


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)  # without taking as much of the disk


def _with_commands(path: Path, _: Path) -> None:
    is_json = path.suffix in (".json", ".jsonl")
    content = path.read_bytes()
    assert TOKEN in content, path
    path.write_bytes(content.replace(TOKEN, COMMAND[is_json]))


def _rewritten(change: Callable[[dict[str, Any]], object]) -> Make:
    def put(path: Path, _: Path) -> None:
        torch.save(change(torch.load(path, weights_only=True)), path)

    return put


FILE_ODDITIES: Mapping[str, Make] = {
    "link": _own,
    "pipe": _instead(os.mkfifo),
    "folder": _instead(Path.mkdir),
    "large": _instead(_large),
    "digits": _instead(lambda path: path.write_text(f"{'1' * 5_000},,,,,,\n{'1' * 5_000}\n")),
    "commands": _with_commands,
}
CONTENT_ODDITIES: Mapping[str, Make] = {
    "tensor": _rewritten(lambda _: torch.ones(3)),
    "empty": _rewritten(lambda _: {}),
    "list": _rewritten(lambda _: [1, "x"]),
    "no weights": _rewritten(lambda x: x | {"state_dict": 1}),
    "other weights": _rewritten(lambda x: x | {"state_dict": {"x": torch.ones(3)}}),
    "short": _rewritten(
        lambda x: x | {"state_dict": {name: w[:1] for name, w in x["state_dict"].items()}}
    ),
    "no loops": _rewritten(lambda x: {name: x[name] for name in x if name != "loops"}),
    "no version": _rewritten(lambda x: {"state_dict": x["state_dict"]}),
    "callbacks": _rewritten(lambda x: x | {"callbacks": {}}),
    "optimizer": _rewritten(lambda x: x | {"optimizer_states": [{"state": {}}]}),
}  # fmt: skip
IN_TABLE = (
    "table.json", ".driver.lock", ".plan.lock", "study.log", "report.html",
    *(f"base/seed-1/{name}" for name in (
        "config.json", "data.json", "result.json", "attempt.json", "metrics.csv", "log.txt",
        "valid.hypotheses.txt", "valid.samples.json", "SHA256SUMS",
    )),
    *(f"narrow/seed-1.attempt-1/{name}" for name in (
        "config.json", "attempt.json", "progress.json", "metrics.csv", "speed.csv", "log.txt",
        ".process",
    )),
)  # fmt: skip
IN_RESULTS = ("table.json", "runs.jsonl", "data-*.json", "files-*.tar.xz")
FOLDERS_IN_TABLE = ("base", "base/seed-1", "narrow", "narrow/seed-1.attempt-1", "figures")
IN_RUN = (
    "config.json", "data.json", "vocabulary.model", "metrics.csv", "valid.hypotheses.txt",
    "checkpoints/step-00000002.ckpt",
)  # fmt: skip
OF_TRAINING = ("no loops", "no version", "callbacks", "optimizer")


def _oddities(name: str) -> list[str]:
    """Those that make sense for a file of this name."""
    found = ["link", "pipe", "folder"]
    if name.endswith((".csv", ".log", ".txt", ".html", "result.json", ".model", ".ckpt", ".jsonl")):
        found.append("large")
    if name.endswith(".csv"):
        found.append("digits")
    if name.endswith((".json", ".jsonl", "log.txt", ".process")):
        found.append("commands")
    return found


CASES = [
    *(("table", name, oddity) for name in IN_TABLE for oddity in _oddities(name)),
    *(("table", name, "link") for name in FOLDERS_IN_TABLE),
    *(("results", name, oddity) for name in IN_RESULTS for oddity in _oddities(name)),
    *(("run", name, x) for name in IN_RUN for x in _oddities(name) if x != "commands"),
    ("run", "checkpoints", "link"),
    *(("run", IN_RUN[-1], oddity) for oddity in CONTENT_ODDITIES),
]
# The fast tests are of links, which have done the most harm: one for each way of reading.
FAST = [
    *(("table", name, "link") for name in (
        "table.json", "base/seed-1", "base/seed-1/result.json", "base/seed-1/log.txt",
        "base/seed-1/metrics.csv", "report.html",
    )),
    ("results", "runs.jsonl", "link"),
    *(("run", name, "link") for name in ("config.json", "checkpoints", IN_RUN[-1])),
]  # fmt: skip
PARAMETERS = [*FAST, *(pytest.param(*x, marks=pytest.mark.slow) for x in CASES if x not in FAST)]
TRANSLATING = ("evaluate", "attention", "export", "translate")


def _concerns(command: str, name: str, oddity: str) -> bool:
    """Whether a command opens the file; it would take seconds for nothing if it does not."""
    if command == "run":  # a run that is finished is read as report reads it
        return not name.startswith("base/") and oddity in ("link", "pipe")
    if command in TRANSLATING:
        return name not in ("metrics.csv", "valid.hypotheses.txt") and oddity not in OF_TRAINING
    return command != "compare of runs" or name in ("config.json", "valid.hypotheses.txt")


@pytest.fixture(scope="module")
def sound(_figures: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A table with a run that is finished and one that is not, and a run that can be continued."""
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATA_CACHE", str(folder / "cache"))
        (folder / "cache").mkdir()
        (folder / "cache" / "figures").symlink_to(_figures)
        script()  # which takes seconds to bundle
        _leave_table(folder / "table")
        TableFolder(folder / "table").collect(folder / "results")
        corpus = write_corpus(folder / "corpus", train=29, valid=3, test=3)
        experiment = tiny_experiment(
            corpus, max_steps=2, checkpoint_every_steps=1, validate_every_steps=1
        )
        run(replace(experiment, description="TOKEN"), folder / "run", log="none")
        yield folder


def _leave_table(root: Path) -> None:
    plan = claim_plan(root, small_plan())
    done, begun = BASE.directory(root), NARROW.directory(root).with_name("seed-1.attempt-1")
    for cell, directory, number in ((BASE, done, 2), (NARROW, begun, 1)):
        leave_curve(directory, {500: 9.0, 1_000: 7.0})
        claim(directory, replace(plan.experiment(cell), description="TOKEN"))
        write_attempt(directory, Attempt(
            cell=str(cell), number=number, worker="TOKEN", host="TOKEN", started_at=1.0
        ))  # fmt: skip
        (directory / "log.txt").write_text("TOKEN\n")
    write_json(
        done / "data.json", {"sources": [["TOKEN", "0" * 64]], "files": {}, "digest": "0" * 16}
    )
    (done / "valid.hypotheses.txt").write_text("TOKEN\n")
    sample = {"chrf": 1.0, "source": "TOKEN", "reference": "b", "translation": "c"}
    write_json(done / "valid.samples.json", {"samples": [sample]})
    save_result(done, record_checksums(done, replace(result(BASE), commit="TOKEN")))
    write_progress(begun, Progress(stage=RunState.STOPPED, step=9, max_steps=99, message="TOKEN"))
    (begun / ".process").write_text("TOKEN")
    (begun / "speed.csv").write_text("step,tokens_per_second\n7,1300\n")
    path = root / "table.json"
    path.write_bytes(path.read_bytes().replace(b"Two widths", TOKEN))
    for name in ("study.log", "report.html"):
        (root / name).write_bytes(TOKEN)
    (root / "figures").mkdir()
    (root / "figures" / "curves.png").write_bytes(TOKEN)
    with lock_runs(root, WHOLE):
        pass


def _finish_at_once(directory: Path, job: process.Job, place: process.Place) -> Any:
    """In place of a process that trains."""
    save_result(directory, result(NARROW))
    return SimpleNamespace(pid=os.getpid(), poll=lambda: 0)


def _commands(kind: str, folder: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    where = str(folder)
    if kind != "run":
        of_table = {
            "status": [where], "status --json": [where, "--json"], "report": [where],
            "compare": [where, "base", "narrow"], "collect": [where, "--into", f"{where}-into"],
            "run": [str(folder.with_name("pair.py")), "--scale", "tiny", "--directory", where,
                    "--rows", "base,narrow", "--log", "none", "--workers", "1"],
        }  # fmt: skip
        for name, words in of_table.items():
            command = [name.partition(" ")[0], *words]
            yield name, lambda command=command: ablations_cli.PROGRAM.run(command)
            if name == "report":
                yield "dashboard", lambda: _look([folder])
                yield "verify", lambda: ablations_cli.PROGRAM.run(["verify", where])
                if kind == "table":
                    words = ["verify", f"{where}/base/seed-1"]
                    yield (
                        "verify of a run",
                        lambda words=words: experiments_cli.PROGRAM.run(words),
                    )
        return
    of_run = {
        "verify": [where], "evaluate": [where], "attention": [where, "one two"],
        "export": [where, "--format", "safetensors"], "compare of runs": [where, where],
        "translate": [where],
        "train": [f"{where}-files/config.json", "--directory", where, "--log", "none"],
    }  # fmt: skip
    for name, words in of_run.items():
        command = [name.partition(" ")[0], *words]
        yield name, lambda command=command: experiments_cli.PROGRAM.run(command)


def _look(folders: list[Path]) -> int:
    page = Page(folders)
    print(page.html())
    print(page.report(folders[0].resolve()))
    return 0


def _hang(*_: object) -> None:
    raise AssertionError(f"it takes more than {SECONDS} seconds")


def _contents(folder: Path) -> dict[str, bytes]:
    """All plain files below a folder, without following links."""
    files = (x for x in folder.rglob("*") if x.is_file() and not x.is_symlink())
    return {str(x): x.read_bytes() for x in files if x.stat().st_size < 2**30}


@pytest.mark.usefixtures("_undrawn")
@pytest.mark.parametrize(("kind", "name", "oddity"), PARAMETERS)
def test_a_hostile_folder_harms_nobody(
    kind: str, name: str, oddity: str, sound: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    monkeypatch.setenv("DATA_CACHE", str(sound / "cache"))
    monkeypatch.setattr("ablations.tables.plan_file.faster_precision", lambda _: "fp32")
    monkeypatch.setattr(process, "fork", _finish_at_once)
    folder = shutil.copytree(sound / kind, tmp_path / "given" / kind, symlinks=True)
    (tmp_path / "given" / "pair.py").write_text(TABLE_FILE)
    if kind == "run":
        shutil.copytree(folder, f"{folder}-files", symlinks=True)
        (folder / "result.json").unlink()  # so that train has something to do
    (own := tmp_path / "own").mkdir()
    (path,) = folder.glob(name)
    {**FILE_ODDITIES, **CONTENT_ODDITIES}[oddity](path, own / path.name)
    before = _contents(own)
    handler = signal.signal(signal.SIGALRM, _hang)
    try:
        for command, call in _commands(kind, folder):
            if not _concerns(command, name, oddity):
                continue
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one two\n")))
            signal.alarm(SECONDS)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                code = call()
            signal.alarm(0)
            printed = capsys.readouterr()
            said = printed.out + printed.err
            assert code in (0, 1, 2), command
            assert "Traceback" not in said, command
            assert (code == 2) == (said.count(": error: ") == 1), (command, said)
            if kind == "run" and oddity == "link" and command in TRANSLATING:
                assert code == 2, (command, said)
            assert "SECRET" not in said and "\x1b" not in said, (command, said)
            assert not any("SECRET" in str(each.message) for each in warned), command
            assert _contents(own) == before, command
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    assert not any(SECRET in content for content in _contents(tmp_path / "given").values())


def test_a_strange_folder_spoils_its_own_section_of_the_page_alone(sound: Path, tmp_path: Path):
    odd = shutil.copytree(sound / "table", tmp_path / "odd")
    _instead(os.mkfifo)(odd / "narrow" / "seed-1.attempt-1" / "metrics.csv", tmp_path)
    page = Page([odd, sound / "table"]).html()
    assert "metrics.csv is a pipe, and not a file" in page
    assert "Learning curves" in page  # of the sound one


@pytest.mark.usefixtures("_undrawn")
def test_a_report_removes_no_picture_that_is_not_its_own(sound: Path, tmp_path: Path):
    root = shutil.copytree(sound / "table", tmp_path / "table")
    for name in ("mine.png", "differences-of-mine.svg", "history.svg"):  # the last of a search
        (root / "figures" / name).touch()
    assert ablations_cli.PROGRAM.run(["report", str(root)]) == 0
    left = {path.name for path in (root / "figures").iterdir()}
    assert {"mine.png", "differences-of-mine.svg"} <= left and "history.svg" not in left


@pytest.fixture
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = ("<svg/>", b"")
    monkeypatch.setattr("ablations.report.layout.draw", lambda specs: dict.fromkeys(specs, drawn))
