"""The source of the user's own classes in runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from experiments.records.experiment import PLACES_FILE, SOURCE_FILE
from experiments.records.run import Run
from transformer.files import read_json, to_json, write_json
from transformer.imported_files import has_changed_since, places_of, source_record, with_imported

_MOST_TRIALS = 10  # that are named


def record_source(directory: Path, names: Iterable[str]) -> None:
    """Record the source of those of the classes ``names`` that are the user's own, as it is when
    the run begins, and where it is on this machine.
    """
    if record := source_record(names):
        write_json(directory / PLACES_FILE, places_of(record))
        if not (directory / SOURCE_FILE).exists():
            write_json(directory / SOURCE_FILE, record)


def record_imported(directory: Path) -> None:
    """Add the files that this process has imported since then to the run's record of its source."""
    path = directory / SOURCE_FILE
    if path.exists():
        before = read_json(path)
        if (record := with_imported(before)) != before:
            write_json(path, record)


def has_changed(run: Run) -> bool:
    """Whether a file that a run imported has changed since, as far as this machine can tell."""
    return run.source is not None and has_changed_since(run.source, run.source_places)


def source_warnings(runs: Iterable[Run]) -> Iterator[str]:
    """A line that names the rows, or trials, whose runs imported a file that has changed since,
    although the definition of their class has not.
    """
    known: dict[str, bool] = {}  # seeds have the same record
    changed: dict[str, str] = {}  # rows, or trials with an empty row
    for run in runs:
        if (record := run.source) is None:
            continue
        places = run.source_places
        key = to_json({"record": record, "places": places})
        if key not in known:
            known[key] = has_changed_since(record, places)
        if known[key]:
            changed[run.row or run.name] = run.row
    names = list(changed)
    if all(changed.values()):
        again = f"; run … --again {','.join(names)} trains them again"
    else:  # trials, which may be hundreds
        again, more = "", len(names) - _MOST_TRIALS
        names = [*names[:_MOST_TRIALS], *([f"{more} more"] if more > 0 else [])]
    if names:
        said = ", ".join(names)
        yield f"source changed since: {said}: a file that their runs had imported{again}"
