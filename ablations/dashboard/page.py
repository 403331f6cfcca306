"""Turn a reading into HTML by Jinja2's templates, which escape everything."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ablations.dashboard.reading import Reading
from ablations.files import HTML_FILE, STUDY_FILE
from ablations.status.model import ENDED, Run, Status
from ablations.status.text import ORDER, at_step, describe_host, in_order, place, stage
from experiments.run.measures import MEASURES
from experiments.run.progress import RunState
from transformer.formats import count, duration, number

TEMPLATES = Path(__file__).parent / "templates"
# Shown with all their figures; the others are only in the grid or counted.
_UNFINISHED = (RunState.RUNNING, RunState.FAILED, RunState.GIVEN_UP, RunState.STOPPED)
_MARKS = {
    RunState.FAILED: "bad",
    RunState.GIVEN_UP: "bad",
    RunState.STOPPED: "warn",
    RunState.RUNNING: "live",
    RunState.DONE: "done",
}


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions: dict[str, Any] = {
        "at_step": at_step,
        "count": count,
        "duration": duration,
        "mark": _mark,
        "number": number,
        "measures": MEASURES,
        "place": place,
    }
    environment.globals.update(functions)
    return environment


def render_directory(name: str, directory: Path, reading: Reading | None, problem: str) -> str:
    """One table or search; ``problem`` says why it cannot be read now, and ``reading`` is None if
    it never could.
    """
    values: dict[str, Any] = {
        "name": name,
        "directory": directory,
        "reading": reading,
        "problem": problem,
    }
    if reading is not None:
        status = reading.status
        runs = [run for run in in_order(status) if run.state in _UNFINISHED]
        values |= {
            "counts": _counts(status),
            "ended": sum(run.state in ENDED for run in status.runs),
            "hosts": [describe_host(host, status) for host in status.hosts],
            "runs": [(run, stage(run, status.silent_for(run))) for run in runs],
            "silent_for": status.silent_for,
            "works": any(status.silent_for(run) is None for run in status.running),
            "report": (directory / HTML_FILE).is_file(),
            "study": directory / STUDY_FILE,
        }
    return _environment().get_template("directory.html.j2").render(values)


def render_page(title: str, directories: Sequence[str], roots: str, changes: str) -> str:
    """A page of rendered ``directories``; ``changes`` is the address that it polls."""
    template = _environment().get_template("page.html.j2")
    return template.render(title=title, directories=directories, roots=roots, changes=changes)


def render_refusal(why: str) -> str:
    """A page that says why there is nothing at an address."""
    return _environment().get_template("page.html.j2").render(title=why, changes="")


def _counts(status: Status) -> str:
    counts = status.counts
    return ", ".join(
        [f"{counts[RunState.DONE]} of {len(status.runs)} done"]
        + [f"{counts[x]} {x}" for x in ORDER if counts[x] and x != RunState.DONE]
    )


def _mark(run: Run, silent: float | None = None) -> str:
    """The class of the style sheet for a run's state."""
    return "warn" if silent is not None else _MARKS.get(run.state, "")
