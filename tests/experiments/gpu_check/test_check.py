"""The check continues past what fails, keeps what it found, and needs torch and lightning alone."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.gpu_check import check, record
from experiments.gpu_check.check import check_gpu, run_parts
from experiments.gpu_check.findings import Findings
from experiments.gpu_check.parts import Part, parts_of
from experiments.gpu_check.worker import Outcome, Worker, run_part
from tests.test_architecture import MODULES
from transformer.errors import InputError

ROOT = Path(__file__).parents[3]


def fine(device: torch.device, findings: Findings) -> None:
    findings.add("a | b", "1.5", figures=str(device))


def wrong(_: torch.device, findings: Findings) -> None:
    findings.compare("within", 0.1, 0.2)
    findings.compare("nothing at all", float("nan"), 0.2)


def failing(_: torch.device, findings: Findings) -> None:
    del findings
    raise ValueError("no such\nkernel")


def never_called(_: torch.device, findings: Findings) -> None:
    raise AssertionError(findings)


def hanging(_: torch.device, findings: Findings) -> None:
    findings.add("before", "1", figures=1)
    Path("worker").write_text(str(os.getpid()))
    subprocess.run(["sleep", "600"])


def dying(_: torch.device, findings: Findings) -> None:
    findings.add("before", "1", figures=1)
    os._exit(3)


class InThisProcess:
    """Runs the parts in this process, without a time limit."""

    def __init__(self, device_type: str) -> None:
        self.device = torch.device(device_type)

    def run(
        self, part: Part, seconds: float, earlier: Outcome, on_finding: Callable[[Outcome], None]
    ) -> Outcome:
        del seconds
        return run_part(part, self.device, earlier, on_finding)

    def stop(self) -> None:
        pass


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "Worker", InThisProcess)


def read_parts(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8"))["parts"]


def test_a_part_that_fails_is_named_and_the_next_one_begins(
    in_this_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.json"
    parts = [
        Part("one", 1, failing), Part("two", 1, wrong),
        Part("three", 1, fine), Part("four", 999, fine),
    ]  # fmt: skip
    assert run_parts(parts, "cpu", 100, output) == 1
    found = read_parts(output)
    assert [x["state"] for x in found.values()] == ["failed", "differs", "done", "not begun"]
    assert found["one"]["error"] == "kernel" and "ValueError: no such" in found["one"]["traceback"]
    (problem,) = found["two"]["problems"].values()
    assert problem.startswith("nothing at all: nan")
    printed = capsys.readouterr().out
    assert "wrong: one, two\nnot finished in time: four;" in printed
    assert "[3/4] three: 1 min 40 s left, 1 s for this\n    a | b " in printed
    page = output.with_suffix(".md").read_text("utf-8")
    assert "| a \\| b | 1.5 |" in page and "| four | not begun |" in page and "- kernel" in page


def test_a_second_call_runs_what_is_missing(
    in_this_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.json"
    assert run_parts([Part("a", 1, fine), Part("b", 999, fine)], "cpu", 100, output) == 0
    assert run_parts([Part("a", 1, never_called), Part("b", 1, fine)], "cpu", 100, output) == 0
    assert [x["state"] for x in read_parts(output).values()] == ["done", "done"]
    monkeypatch.setattr(record, "source_hash", lambda: "other")
    monkeypatch.setattr(check, "source_hash", lambda: "other")
    assert run_parts([Part("a", 1, failing)], "cpu", 100, output) == 1
    assert len(list(tmp_path.glob("out-*.json"))) == 1  # that of the earlier code


def test_an_unfinished_part_continues_with_its_findings(
    in_this_process: None, tmp_path: Path
) -> None:
    def first_half(_: torch.device, findings: Findings) -> None:
        findings.add("first", "1", figures=1)
        raise RuntimeError("CUDA error")

    def second_half(_: torch.device, findings: Findings) -> None:
        assert findings.figures == {"first": 1}
        findings.add("second", "2", figures=2)

    output = tmp_path / "out.json"
    assert run_parts([Part("a", 1, first_half)], "cpu", 100, output) == 1
    assert run_parts([Part("a", 1, second_half)], "cpu", 100, output) == 0
    assert read_parts(output)["a"]["rows"] == {"first": ["1"], "second": ["2"]}


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


def test_a_file_of_something_else_is_left_alone(in_this_process: None, tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    output.write_text('{"bleu": 1}')
    with pytest.raises(InputError, match="is not of this check"):
        run_parts([Part("a", 1, fine)], "cpu", 100, output)
    assert output.read_text() == '{"bleu": 1}'


@pytest.mark.slow
def test_a_part_that_hangs_or_dies_ends_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    worker = Worker("cpu")

    def run(function: Any, seconds: float) -> Outcome:
        return worker.run(Part("", 1, function), seconds, {}, lambda _: None)

    try:
        assert run(fine, 60)["figures"] == {"a | b": "cpu"}
        hung = run(hanging, 1)
        assert (hung["state"], hung["figures"]) == ("out of time", {"before": 1})
        died = run(dying, 60)
        assert died["error"].endswith("exit code 3") and died["figures"] == {"before": 1}
        assert run(fine, 60)["state"] == "done"
    finally:
        worker.stop()


_HANGING = """
from pathlib import Path
from experiments.gpu_check import check
from experiments.gpu_check.parts import Part
from tests.experiments.gpu_check.test_check import hanging
check.parts_of = lambda _: [Part("hanging", 99, hanging)]
if __name__ == "__main__":
    check.check_gpu("cpu", 10, Path("out.json"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_worker_and_loses_nothing(tmp_path: Path, number: int) -> None:
    (tmp_path / "hang.py").write_text(_HANGING)
    parent = subprocess.Popen(
        [sys.executable, "hang.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (tmp_path / "worker").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)  # the worker has begun to wait
    parent.send_signal(number)
    out, err = parent.communicate(timeout=20)
    found = read_parts(tmp_path / "out.json")["hanging"]
    assert found["figures"] == {"before": 1}
    if number == signal.SIGKILL:
        assert found["state"] == "running"
    else:
        assert (parent.returncode, err, found["state"]) == (128 + number, "", "stopped")
        assert "out.json has what was found, the same command continues" in out
    group = int((tmp_path / "worker").read_text())
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("a process of the worker has survived")


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


def imported_with(module: str) -> set[str]:
    """The modules that this one imports as soon as it is imported."""
    found: set[str] = set()
    for node in ast.parse(MODULES[module].read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_it_is_imported_with_torch_and_lightning_alone() -> None:
    needed = [module for module in MODULES if module.startswith("experiments.gpu_check.")]
    needed.append("experiments.cli")
    found, roots = set(needed), set[str]()
    while needed:
        for name in imported_with(needed.pop()):
            roots.add(name.partition(".")[0])
            packages = {name.rsplit(".", depth)[0] for depth in range(name.count(".") + 1)}
            new = {x for x in (name, *packages) if x in MODULES} - found
            found |= new
            needed += new
    assert "experiments.benchmark.training" in found
    # numpy, filelock and tqdm come with lightning.
    allowed = {"torch", "lightning", "numpy", "filelock", "tqdm", "transformer", "experiments"}
    assert roots <= allowed | sys.stdlib_module_names


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
    found = read_parts(output)
    assert [*found] == [part.name for part in parts_of("cpu")]
    assert {x["state"] for x in found.values()} == {"done"}
    kernels = found["train tiny"]["figures"]["kernels"]
    assert next(iter(kernels)) == "products"
    # All of a step's operations, give or take what the profiler itself takes.
    assert sum(kernels.values()) == pytest.approx(
        found["train tiny"]["figures"]["seconds_per_step"], rel=0.7
    )
