"""The check as Markdown: the parts, what is wrong, then the figures of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformer.formats import duration, size


def markdown(figures: dict[str, Any]) -> str:
    """The page of what ``check`` wrote as JSON."""
    about, parts = figures["about"], figures["parts"]
    memory = about.get("memory_bytes")
    words = [
        about["device"] + (f", {size(memory)}" if memory else ""),
        f"torch {about['torch']}",
        *(f"CUDA {about['cuda']}, cuDNN {about['cudnn']}" for _ in [0] if about.get("cuda")),
        f"commit {about['commit']}, source {about['source']}",
        about["finished_at"],
    ]
    lines = ["# Check of a device", "", "; ".join(words), ""]
    states = [(name, x["state"], duration(x.get("seconds"))) for name, x in parts.items()]
    lines += _table(("part", "state", "time"), states)
    for name, part in parts.items():
        lines += ["", f"## {name}: {part['state']}", ""]
        if problems := [*part.get("wrong", ()), *filter(None, [part.get("error")])]:
            lines += [*(f"- {_escaped(problem)}" for problem in problems), ""]
        if rows := part.get("rows"):
            is_training = name.startswith("train ")
            head = ("", "ours", "plain code", "ratio (quartiles)") if is_training else ("", "found")
            lines += _table(head, rows)
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    width = max(map(len, [head, *rows]))

    def line(cells: Sequence[str]) -> str:
        padded = [*cells, *[""] * (width - len(cells))]
        return f"| {' | '.join(_escaped(cell) for cell in padded)} |"

    return [line(head), "|---|" + "---:|" * (width - 1), *map(line, rows)]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").strip()
