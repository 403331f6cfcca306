"""The check goes on past what fails, keeps what it found, and needs torch and lightning alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.gpu_check import check
from experiments.gpu_check.check import check_gpu, check_parts
from experiments.gpu_check.findings import Findings
from experiments.gpu_check.parts import Part, parts_of
from experiments.gpu_check.worker import Outcome, Worker, carried_out
from transformer.errors import InputError

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")


def fine(device: torch.device) -> Findings:
    return Findings(rows=[("a | b", "1.5")], figures={"device": str(device)})


def wrong(_: torch.device) -> Findings:
    findings = Findings()
    findings.compare("within", 0.1, 0.2)
    findings.compare("nothing at all", float("nan"), 0.2)
    return findings


def failing(_: torch.device) -> Findings:
    raise ValueError("no such\nkernel")


def hanging(_: torch.device) -> Findings:
    time.sleep(60)
    return Findings()


def dying(_: torch.device) -> Findings:
    os._exit(3)


class Here:
    """Does the parts in this process."""

    def __init__(self, device_type: str) -> None:
        self.device = torch.device(device_type)

    def do(self, part: Part, seconds: float) -> Outcome:
        del seconds
        return carried_out(part, self.device)

    def stop(self) -> None:
        pass


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "Worker", Here)


def written(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8"))["parts"]


def test_it_goes_on_past_what_fails_and_names_it(
    here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "new" / "out.json"
    parts = [
        Part("one", 1, failing), Part("two", 1, wrong),
        Part("three", 1, fine), Part("four", 999, fine),
    ]  # fmt: skip
    assert check_parts(parts, "cpu", 100, output) == 1
    found = written(output)
    assert [x["state"] for x in found.values()] == ["failed", "differs", "done", "not begun"]
    assert found["one"]["error"] == "kernel" and "ValueError: no such" in found["one"]["traceback"]
    (difference,) = found["two"]["wrong"]
    assert difference.startswith("nothing at all: nan")
    printed = capsys.readouterr().out
    assert "wrong: one, two\nnot finished in time: four" in printed and "1 min 40 s left" in printed
    page = output.with_suffix(".md").read_text("utf-8")
    assert "| a \\| b | 1.5 |" in page and "| four | not begun |" in page and "- kernel" in page


def test_a_second_call_does_what_is_missing(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.json"
    assert check_parts([Part("a", 1, fine), Part("b", 999, fine)], "cpu", 100, output) == 0
    assert check_parts([Part("a", 1, failing), Part("b", 1, fine)], "cpu", 100, output) == 0
    assert [x["state"] for x in written(output).values()] == ["done", "done"]
    monkeypatch.setattr(check, "_source", lambda: "other")
    assert check_parts([Part("a", 1, failing)], "cpu", 100, output) == 1
    assert len(list(tmp_path.glob("out-*.json"))) == 1  # that of the earlier code


@pytest.mark.parametrize(
    ("device", "minutes", "output", "said"),
    [
        ("cpu", 0, "out.json", "--minutes is 0, but must be above 0"),
        ("cpu", 1, "out.md", "name a .json file"),
        pytest.param(
            *("cuda", 1, "out.json", "torch finds no GPU here; --device cpu rehearses"),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_bad_input_is_refused(device: str, minutes: float, output: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_gpu(device, minutes, Path(output))


def test_a_file_of_something_else_is_left_alone(here: None, tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    output.write_text('{"bleu": 1}')
    with pytest.raises(InputError, match="is not of this check"):
        check_parts([Part("a", 1, fine)], "cpu", 100, output)
    assert output.read_text() == '{"bleu": 1}'


@pytest.mark.slow
def test_a_part_that_hangs_or_dies_ends_alone() -> None:
    worker = Worker("cpu")
    try:
        assert worker.do(Part("fine", 1, fine), 60)["figures"] == {"device": "cpu"}
        assert worker.do(Part("hanging", 1, hanging), 1)["state"] == "out of time"
        assert worker.do(Part("dying", 1, dying), 60)["error"].endswith("exit code 3")
        assert worker.do(Part("fine", 1, fine), 60)["state"] == "done"
    finally:
        worker.stop()


def bare(folder: Path) -> dict[str, str]:
    """An environment in which this project finds what torch and lightning need, and no more."""
    needed, found = ["torch", "lightning"], set[str]()
    while needed:
        name = re.split(r"[^\w.-]", needed.pop())[0].lower().replace("_", "-")
        if name not in found:
            found.add(name)
            needed += [x for x in requires(name) or () if "extra ==" not in x and ";" not in x]
    absent = [
        module
        for module, owners in packages_distributions().items()
        if not found & {owner.lower().replace("_", "-") for owner in owners}
        and module not in ("transformer", "experiments", "ablations", "numpy")
    ]
    assert {"optuna", "wandb", "sacrebleu", "sentencepiece", "vl_convert", "rich"} <= {*absent}
    (folder / "sitecustomize.py").write_text(
        f"""
import builtins
absent, found = {absent!r}, builtins.__import__
def importing(name, globals=None, locals=None, fromlist=(), level=0):
    ours = (globals or {{}}).get("__name__", "").partition(".")[0] in ("transformer", "experiments")
    if ours and not level and name.partition(".")[0] in absent:
        raise ModuleNotFoundError(name)
    return found(name, globals, locals, fromlist, level)
builtins.__import__ = importing
"""
    )
    paths = f"{folder}{os.pathsep}{ROOT}"
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": paths}


def test_it_is_imported_with_torch_and_lightning_alone(tmp_path: Path) -> None:
    code = "import experiments.gpu_check.check, experiments.benchmark.report, experiments.cli\n"
    code += "try:\n    exec('import rich', {'__name__': 'experiments.x'})\n"
    code += "except ModuleNotFoundError:\n    print('blocked')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=bare(tmp_path), capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("blocked\n", "")


@pytest.mark.slow
def test_every_part_is_rehearsed_with_torch_and_lightning_alone(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    words = ["check-gpu", "--device", "cpu", "--minutes", "30", "--output", str(output)]
    done = subprocess.run(
        [sys.executable, "-m", "experiments", *words],
        cwd=tmp_path,
        env=bare(tmp_path) | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    found = written(output)
    assert [*found] == [part.name for part in parts_of("cpu")]
    assert {x["state"] for x in found.values()} == {"done"}
    assert found["resuming"]["figures"]["without a GPU"]["steps"] == 4
    kernels = found["train tiny"]["figures"]["kernels"]
    assert next(iter(kernels)) == "products"
    # All of a step's operations, give or take what the profiler itself takes.
    assert sum(kernels.values()) == pytest.approx(
        found["train tiny"]["figures"]["seconds_per_step"], rel=0.7
    )
