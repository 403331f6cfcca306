"""The file in which a check keeps what it has found, and the Markdown table next to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transformer.errors import InputError
from transformer.files import read_json, rename, write_atomically, write_json
from transformer.formats import duration, size

Outcome = dict[str, Any]
_ROOT = Path(__file__).parents[2]
# A later call continues an earlier one if these are the same.
_IDENTITY = ("device", "torch", "source")


@dataclass
class Record:
    """The outcomes of a check by part, and the environment it ran in."""

    path: Path
    environment: dict[str, Any]
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])

    @classmethod
    def open(cls, path: Path, environment: dict[str, Any]) -> Record:
        """Read what an earlier call has found; that of other code or another device is renamed.

        Raises:
            InputError: if the file is not of a check.
        """
        if not path.exists():
            return cls(path, environment)
        earlier = read_json(path)
        if "parts" not in earlier or "environment" not in earlier:
            raise InputError(f"{path} is not of this check; choose another --output")
        found = earlier["environment"]
        if all(found.get(key) == environment[key] for key in _IDENTITY):
            return cls(path, environment, earlier["parts"])
        kept = path.with_name(f"{path.stem}-{found.get('source')}{path.suffix}")
        rename(path, kept)
        print(f"{path} is of other code or another device: kept as {kept}")
        return cls(path, environment)

    def save(self) -> None:
        """Write the JSON and the table."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        content = {
            "environment": self.environment | {"finished_at": now},
            "parts": self.outcomes,
        }
        write_json(self.path, content)
        write_atomically(self.path.with_suffix(".md"), markdown(content))


def source_hash() -> str:
    """A hash of the code: a copy of the tree has no commit, and a changed tree an older one."""
    rooms = ("transformer", "experiments")
    paths = (path for room in rooms for path in (_ROOT / room).rglob("*.py"))
    contents = b"".join(path.read_bytes() for path in sorted(paths))
    return hashlib.sha256(contents).hexdigest()[:16]


def markdown(content: dict[str, Any]) -> str:
    """The parts and their states, then the problems and the rows of each."""
    environment, outcomes = content["environment"], content["parts"]
    memory = environment.get("memory_bytes")
    words = [
        environment["device"] + (f", {size(memory)}" if memory else ""),
        f"torch {environment['torch']}",
        *(f"{key} {environment[key]}" for key in ("cuda", "cudnn") if environment.get(key)),
        f"commit {environment['commit']}, source {environment['source']}",
        environment["finished_at"],
    ]
    lines = ["# Check of a device", "", "; ".join(words), ""]
    states = [(name, x["state"], duration(x.get("seconds"))) for name, x in outcomes.items()]
    lines += _table(("part", "state", "time"), states)
    for name, outcome in outcomes.items():
        lines += ["", f"## {name}: {outcome['state']}", ""]
        if problems := problems_of(outcome):
            lines += [*(f"- {_escaped(problem)}" for problem in problems), ""]
        rows = [(what, *cells) for what, cells in outcome.get("rows", {}).items()]
        if rows:
            is_training = name.startswith("train ")
            head = ("", "ours", "plain code", "ratio (quartiles)") if is_training else ("", "found")
            lines += _table(head, rows)
    return "\n".join(lines) + "\n"


def problems_of(outcome: Outcome) -> list[str]:
    """What differs from the CPU, and the error that ended the part."""
    error = outcome.get("error")
    return [*outcome.get("problems", {}).values(), *([error] if error else [])]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    width = max(map(len, [head, *rows]))

    def line(cells: Iterable[str]) -> str:
        padded = [*map(_escaped, cells)]
        return f"| {' | '.join([*padded, *[''] * (width - len(padded))])} |"

    return [line(head), "|---|" + "---:|" * (width - 1), *map(line, rows)]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").strip()
