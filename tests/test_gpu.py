"""Find what would fail only on a GPU, without one.

The GPU's tests run here with no more packages than they name, and tensors on ``meta`` show what is
computed on the wrong device.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from ablations.tables.table3 import TABLE
from tests.gpu import conftest
from tests.gpu.conftest import outcomes, pytest_configure
from tests.samples import TINY_MODEL, random_sentences, random_targets
from transformer.config import Config, DecodingConfig
from transformer.data.batches import Batch
from transformer.decoding import beams
from transformer.decoding.search import beam_search
from transformer.model.encoder_decoder import Transformer
from transformer.training.module import TransformerModule

ROOT = Path(__file__).parents[1]
NEEDED = ("torch", "lightning", "pytest")
# Makes our modules find only what is needed.
SITE = """
import builtins
absent, found = {absent!r}, builtins.__import__
def importing(name, globals=None, locals=None, fromlist=(), level=0):
    user = (globals or {{}}).get("__name__", "").partition(".")[0]
    ours = user in ("transformer", "experiments", "ablations", "bench", "tests")
    if ours and not level and name.partition(".")[0] in absent:
        raise ModuleNotFoundError(name)
    return found(name, globals, locals, fromlist, level)
builtins.__import__ = importing
"""


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
        and not (ROOT / module / "__init__.py").is_file()
    ]
    assert {"hypothesis", "optuna", "wandb", "sacrebleu", "sentencepiece", "rich"} <= {*modules}
    return modules


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_all_are_skipped_with_one_line() -> None:
    config = cast(pytest.Config, SimpleNamespace(getoption={"--device": "cuda"}.get))
    with pytest.raises(pytest.exit.Exception, match="skipped: torch finds no GPU") as end:
        pytest_configure(config)
    assert end.value.returncode == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_all_that_a_cpu_can_run_passes(tmp_path: Path) -> None:
    """But of the rows of Table 3 only few, and what has passed is not run again."""
    (tmp_path / "sitecustomize.py").write_text(SITE.format(absent=absent()))
    tests = str(ROOT / "tests" / "gpu")
    options = ["-c", f"{tests}/pytest.ini", "-p", "no:cacheprovider", "--device", "cpu"]
    rows = " or ".join(f"[{row.name}]" for row in TABLE.rows if row.name not in ("base", "A-h1"))
    chosen = ["--minutes", "14", "-k", f"not ({rows})"]
    command = [sys.executable, "-m", "pytest", tests, *options, *chosen]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
    }
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "not here: " in done.stdout
    lines = (tmp_path / "runs" / "gpu.jsonl").read_text("utf-8").splitlines()
    first, *each_test = map(json.loads, lines)
    assert first["versions"]["torch"] == torch.__version__
    found = {each["test"].partition("::")[2]: each for each in each_test}
    passed = {name for name, each in found.items() if each["outcome"] == "passed"}
    assert {"test_training[tiny]", "test_a_row_of_small[base]", "test_decoding_of_news"} <= passed
    assert found["test_loss_and_gradient[base]"]["fp32_packed_differs_by"]["gradient"] < 1e-3
    resumed = "test_captured_steps_are_the_launched_ones_and_resume_bit_for_bit[packed]"
    assert found[resumed]["resumed_differs_by"] == 0.0 and "resumed differs by " in done.stdout
    assert "aten::mm" in found["test_training[tiny]"]["ms_by_operation"]


def test_what_the_file_holds_of_this_commit_is_not_measured_again(tmp_path: Path) -> None:
    here: dict[str, Any] = {"device": "a GPU", "commit": "abc", "versions": {"torch": "2"}}
    other = here | {"commit": "abd"}
    lines: list[dict[str, Any]] = [
        *(other, {"test": "t::old", "outcome": "passed"}),
        *(here, {"test": "t::new", "outcome": "began"}, {"test": "t::new", "outcome": "passed"}),
        *({"test": "t::failed", "outcome": "failed"}, {"test": "t::hung", "outcome": "began"}),
    ]
    path = tmp_path / "gpu.jsonl"
    assert outcomes(path, here) == {}
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    expected = {"t::new": "passed", "t::failed": "failed", "t::hung": "began"}
    assert outcomes(path, here) == expected
    assert outcomes(path, other) == {"t::old": "passed"}
    assert outcomes(path, here | {"versions": {"torch": "3"}}) == {}
    path.write_text(path.read_text("utf-8").replace("abc", "abc-dirty"), encoding="utf-8")
    assert outcomes(path, here | {"commit": "abc-dirty"}) == {}


def test_what_has_passed_is_left_out_and_what_hung_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"test_training.py::a": "", "test_equality.py::b": "began"}
    names |= {"test_equality.py::c": "passed", "test_resuming.py::d": "failed"}
    monkeypatch.setattr(conftest, "outcomes", lambda path, here: names)
    gone: list[str] = []
    hook = SimpleNamespace(
        pytest_deselected=lambda items: gone.extend(item.nodeid for item in items)
    )
    items = [SimpleNamespace(nodeid=x, path=Path(x.partition("::")[0])) for x in names]
    results = conftest.Results(tmp_path / "gpu.jsonl", torch.device("cpu"))
    results.pytest_collection_modifyitems(cast(Any, SimpleNamespace(hook=hook)), cast(Any, items))
    left = [item.nodeid for item in items]
    assert left == ["test_resuming.py::d", "test_training.py::a", "test_equality.py::b"]
    assert gone == ["test_equality.py::c"]


def test_a_step_keeps_to_one_device(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    batch = Batch(
        src=random_sentences([5, 3]), tgt=random_targets([4, 7]), source_tokens=8, target_tokens=9
    )
    module = TransformerModule(tiny_config)
    module.model.to("meta")
    smoothed, _ = module.sums(batch.to("meta"))
    gradients = torch.autograd.grad(smoothed, list(module.parameters()))
    assert {gradient.device.type for gradient in gradients} == {"meta"}


@pytest.mark.parametrize("beam_size", [1, 2])
def test_every_tensor_of_a_search_names_its_device(
    beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not lands on ``meta`` here, and on the CPU of a machine with a GPU."""
    # A single number may stay on the CPU.
    monkeypatch.setattr(beams, "length_penalty", lambda n, alpha: ((5.0 + n) / 6.0) ** alpha)
    model = Transformer(TINY_MODEL).eval()
    src = random_sentences([5, 3])
    config = DecodingConfig(beam_size=beam_size, max_extra_length=3)
    with torch.inference_mode():
        expected = beam_search(model, src, config)
        with torch.device("meta"):
            assert beam_search(model, src, config) == expected
