"""Drawing in a process of its own, and what a figure cannot hold."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.figures import render, style
from experiments.figures.render import DrawingError


class Call:
    """Unpickled, it calls a function."""

    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        function, *arguments = self._call
        return function, tuple(arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Call(os.abort), "plots cannot be drawn here: signal 6 ended the process that draws"),
        (Call(signal.raise_signal, signal.SIGTRAP), "signal 5 ended the process that draws them"),
        (Call(time.sleep, 60), "plots cannot be drawn here: it takes more than 1 seconds"),
        (Call(exec, "raise SystemExit('Vega: no mark\\n    at line 7')"), "here: Vega: no mark"),
        (Call(exec, "raise SystemExit(3)"), "here: no reason was given"),
    ],
    ids=lambda x: "" if isinstance(x, Call) else str(x)[-30:],
)
def test_whatever_becomes_of_the_process_that_draws_is_an_error_here(
    monkeypatch: pytest.MonkeyPatch, call: Any, message: str
) -> None:
    monkeypatch.setattr(render, "_SECONDS", 1 if "takes" in message else 30)
    with pytest.raises(DrawingError, match=message):
        render.to_svg(call)


def test_a_script_that_cannot_be_made_leaves_pages_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_CACHE", str(tmp_path))
    monkeypatch.setattr(render, "_SNIPPET", Call(os.abort))
    with pytest.warns(UserWarning, match="no interactive plots: plots cannot be drawn here"):
        assert render.script.__wrapped__() == ""
    assert not (tmp_path / "figures").exists()


def test_a_figure_holds_what_an_svg_and_json_can() -> None:
    point = {"name": "a\0b\x1b\ufffe\ud800c\td", "value": math.inf, "low": -math.inf, "high": 5}
    spec = style.figure("x" * 100_000, layer=({"data": {"values": [point]}},))
    (values,) = (layer["data"]["values"] for layer in spec["layer"])
    assert values == [{"name": "abc\td", "value": None, "low": None, "high": 5}]
    assert len(spec["title"]) < 300
    json.dumps(spec, allow_nan=False)
