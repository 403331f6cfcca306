"""The device, the time limits, and the file of what the tests have found."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.common import Size, lines_of
from experiments.devices import device_name
from experiments.records.provenance import commit, versions

# Equality first: no time is worth anything without it.
_ORDER = ("test_equality", "test_resuming", "test_small", "test_training", "test_sharing")
# Of a test without a mark; on a GPU, of which a kernel may hang.
_SECONDS = 60.0
_RESULTS = "results"
_BEGAN = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of these tests."""
    add = parser.addoption
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries them at a tiny size")
    add("--minutes", type=float, default=9.0, help="after which all has ended (default: 9)")
    add("--results", default="runs/gpu.jsonl", help="where what is found is added")


def pytest_configure(config: pytest.Config) -> None:
    """Read what has been found before, and keep what is found."""
    device = device_of(config)
    if device.type == "cuda" and not torch.cuda.is_available():
        pytest.exit("skipped: torch finds no GPU here; --device cpu tries these tests on a CPU", 0)
    config.addinivalue_line("markers", "seconds(most): that a test may take on a GPU")
    results = Results(Path(str(config.getoption("--results"))), device)
    config.pluginmanager.register(results, _RESULTS)


def device_of(config: pytest.Config) -> torch.device:
    """The value of ``--device``."""
    return torch.device(str(config.getoption("--device")))


class Results:
    """Prints each test's properties, and adds them to a file as a line of JSON.

    A test that the file holds as passed, on this device at this commit, is not run again; one that
    has begun there and never ended, as when a kernel hangs, comes last.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        self._path, self._environment = path, environment(device)
        self._outcomes = outcomes(path, self._environment)
        self._terminal: Any = None
        self.stderr = os.dup(2)  # pytest takes the other one while a test runs

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Begin with the environment."""
        self._terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.add(self._environment)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out what has passed, and put what is worth most first."""
        found = self._outcomes
        passed = [item for item in items if found.get(item.nodeid) == "passed"]
        items[:] = [item for item in items if found.get(item.nodeid) != "passed"]
        items.sort(key=lambda x: (found.get(x.nodeid) == "began", _ORDER.index(x.path.stem)))
        config.hook.pytest_deselected(items=passed)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """That all has passed before is no failure."""
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._outcomes:
            session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a test that has run, or that could not begin."""
        if report.when != "call" and not report.failed:
            return
        figures = dict(report.user_properties)
        for line in lines_of(figures):
            self._terminal.write_line(f"    {line}")
        found = {"test": report.nodeid, "outcome": report.outcome, "seconds": report.duration}
        if report.failed:
            found["error"] = report.longreprtext
        elif report.skipped:
            found["error"] = str(report.longrepr)
        self.add(found | figures)

    def add(self, found: dict[str, Any]) -> None:
        """Add a line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found, default=asdict) + "\n")


def environment(device: torch.device) -> dict[str, Any]:
    """The device, the libraries that drive it, and the code."""
    found: dict[str, Any] = {
        "device": device_name(device),
        "commit": commit(),
        "versions": versions(),
        "began_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "compute_capability": f"{properties.major}.{properties.minor}",
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
    return found


def outcomes(path: Path, here: dict[str, Any]) -> dict[str, str]:
    """How each test ended last in such an environment; none if files differ from the commit."""
    found: dict[str, str] = {}
    if not path.exists() or here["commit"] == "unknown" or here["commit"].endswith("-dirty"):
        return found
    is_same = False
    for line in path.read_text(encoding="utf-8").splitlines():
        values = json.loads(line)
        if "commit" in values:
            is_same = all(values[name] == here[name] for name in ("device", "commit", "versions"))
        elif is_same:
            found[values["test"]] = values["outcome"]
    return found


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device to test."""
    return device_of(request.config)


@pytest.fixture
def size(device: torch.device) -> Size:
    """The size of most models."""
    return "base" if device.type == "cuda" else "tiny"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The sizes of the models that are timed: the paper's on a GPU."""
    if "timed_size" in metafunc.fixturenames:
        on_gpu = device_of(metafunc.config).type == "cuda"
        metafunc.parametrize("timed_size", ["base", "big"] if on_gpu else ["tiny"])


@pytest.fixture(autouse=True)
def _alone(device: torch.device, request: pytest.FixtureRequest) -> Iterator[None]:
    """Begin only in time, end the process if the test never ends, and free the GPU's memory."""
    minutes = float(request.config.getoption("--minutes") or 0)
    left = 60 * minutes - (time.monotonic() - _BEGAN)
    marker = request.node.get_closest_marker("seconds")
    most = marker.args[0] if marker else _SECONDS
    if left < (most if device.type == "cuda" else 0):
        pytest.skip(f"not begun, as {left:.0f} of {minutes:g} minutes' seconds are left")
    results = request.config.pluginmanager.get_plugin(_RESULTS)
    assert isinstance(results, Results)
    results.add({"test": request.node.nodeid, "outcome": "began"})
    limit = most if device.type == "cuda" else max(left, _SECONDS)
    faulthandler.dump_traceback_later(limit, exit=True, file=results.stderr)
    yield
    faulthandler.cancel_dump_traceback_later()
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
