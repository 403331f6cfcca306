"""The tests of a GPU, on the CPU, with no more packages than they name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
NEEDED = ("torch", "lightning", "pytest")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the tests of a GPU in a process in which our modules find only what is needed."""
    (tmp_path / "sitecustomize.py").write_text(
        f"""
import builtins
absent, found = {absent()!r}, builtins.__import__
def importing(name, globals=None, locals=None, fromlist=(), level=0):
    user = (globals or {{}}).get("__name__", "").partition(".")[0]
    ours = user in ("transformer", "experiments", "ablations", "bench", "tests")
    if ours and not level and name.partition(".")[0] in absent:
        raise ModuleNotFoundError(name)
    return found(name, globals, locals, fromlist, level)
builtins.__import__ = importing
"""
    )
    paths = f"{tmp_path}{os.pathsep}{ROOT}"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": paths}
    folder = ROOT / "tests" / "gpu"
    command = [sys.executable, "-m", "pytest", "-c", folder / "pytest.ini", folder]
    return lambda *options: subprocess.run(
        [*command, "-p", "no:cacheprovider", *options],
        cwd=tmp_path,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def absent() -> list[str]:
    """The modules that come with none of the packages that are needed."""
    needed, found = [*NEEDED], set[str]()
    while needed:
        name = re.split(r"[^\w.-]", needed.pop())[0].lower().replace("_", "-")
        if name not in found:
            found.add(name)
            needed += [x for x in requires(name) or () if "extra ==" not in x and ";" not in x]
    modules = [
        module
        for module, owners in packages_distributions().items()
        if not found & {owner.lower().replace("_", "-") for owner in owners}
        and not (ROOT / module).is_dir()
    ]
    assert {"hypothesis", "optuna", "wandb", "sacrebleu", "sentencepiece", "rich"} <= {*modules}
    return modules


def results(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The environment, and what was found by each test."""
    environment, *found = map(json.loads, path.read_text("utf-8").splitlines())
    return environment, {each["test"].partition("::")[2]: each for each in found}


def test_a_few_pass_on_the_cpu_and_what_they_find_is_kept(run: Run, tmp_path: Path) -> None:
    done = run("--device", "cpu", "-k", "resumed_training or base-fp32")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    environment, found = results(tmp_path / "runs" / "gpu.jsonl")
    assert environment["versions"]["torch"] == torch.__version__
    assert {each["outcome"] for each in found.values()} == {"passed"}
    assert len(found) == 3
    assert found["test_loss_and_gradient[base-fp32]"]["gradient_differs_by"] < 1e-3
    (exact, _) = (each for name, each in found.items() if "resumed" in name)
    assert exact["resumed_differs_by"] == 0.0
    assert "resumed differs by " in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_they_are_skipped_in_one_line(run: Run, tmp_path: Path) -> None:
    done = run()
    assert done.returncode == 0
    (line,) = (done.stdout + done.stderr).splitlines()
    assert "torch finds no GPU here; --device cpu tries these tests on a CPU" in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_that_a_cpu_can_run_passes(run: Run, tmp_path: Path) -> None:
    """But of the rows of ``small`` only one."""
    done = run("--device", "cpu", "--minutes", "12", "-k", "not row_of_small or big")
    assert done.returncode == 0, done.stdout
    _, found = results(tmp_path / "runs" / "gpu.jsonl")
    passed = {name for name, each in found.items() if each["outcome"] == "passed"}
    assert {"test_training[tiny]", "test_a_row_of_small[big]", "test_decoding_of_news"} <= passed
    assert "aten::mm" in found["test_training[tiny]"]["ms_by_operation"]
