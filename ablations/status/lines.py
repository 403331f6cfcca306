"""How far a fleet is, in plain lines."""

from __future__ import annotations

from collections.abc import Iterator

from ablations.status.model import Status
from ablations.status.words import describe, describe_failure, describe_host, headline

_LOG_LINES = 10


def describe_all(status: Status) -> Iterator[str]:
    """One line for all, one for each host and for each run, then what failed, with its log."""
    yield headline(status)
    for host in status.hosts:
        yield describe_host(host, status)
    for run in status.runs:
        yield f"  {describe(run, status)}"
    failed = [run for run in status.runs if run.failures and run.state != "done"]
    if failed:
        yield "failures:"
    for run in failed:
        for failure in run.failures:
            yield from (f"  {line}" for line in describe_failure(run, failure, _LOG_LINES))
