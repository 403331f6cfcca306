"""The device, the time limit, and the file of what the tests have found."""

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

# What a test may take that begins at the last moment.
_LAST_SECONDS = 110.0
_BEGAN = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of these tests."""
    add = parser.addoption
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries them at a tiny size")
    add("--minutes", type=float, default=8.0, help="after which no test begins (default: 8)")
    add("--results", default="runs/gpu.jsonl", help="where what is found is added")


def pytest_configure(config: pytest.Config) -> None:
    """Keep what is found, and end the process if a test never ends."""
    device = device_of(config)
    if device.type == "cuda" and not torch.cuda.is_available():
        pytest.exit("skipped: torch finds no GPU here; --device cpu tries these tests on a CPU", 0)
    path = Path(str(config.getoption("--results")))
    config.pluginmanager.register(Results(path, device))
    seconds = 60 * minutes_of(config) + _LAST_SECONDS
    faulthandler.dump_traceback_later(seconds, exit=True, file=os.dup(2))


def device_of(config: pytest.Config) -> torch.device:
    """The value of ``--device``."""
    return torch.device(str(config.getoption("--device")))


def minutes_of(config: pytest.Config) -> float:
    """The value of ``--minutes``."""
    return float(config.getoption("--minutes") or 0)


class Results:
    """Prints each test's properties, and adds them to a file as a line of JSON."""

    def __init__(self, path: Path, device: torch.device) -> None:
        self._path, self._device = path, device
        self._terminal: Any = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Begin with the environment."""
        self._terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._add(environment(self._device))

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
        self._add(found | figures)

    def _add(self, found: dict[str, Any]) -> None:
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
    """Begin only in time, and leave the GPU's memory as it was."""
    minutes = minutes_of(request.config)
    if time.monotonic() - _BEGAN > 60 * minutes:
        pytest.skip(f"not begun, as {minutes:g} minutes are over: choose it with -k")
    yield
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
