"""A status as an object for programs."""

from __future__ import annotations

from typing import Any

from ablations.status.model import Run, Status
from transformer.config import to_dict


def to_object(status: Status) -> dict[str, Any]:
    """The status in keys that stay. Times are in seconds, ``…_at`` since the epoch.

    ``title``; ``at``; ``seconds_left`` of the whole, null where it cannot be told; ``counts`` of
    runs by state; ``hosts``, each with ``name``, ``workers``, ``runs`` and ``heard_at``; and
    ``runs``, each with ``name``, ``state`` (``running``, ``failed``, ``given up``, ``stopped``,
    ``waiting``, ``done`` or ``pruned``), ``attempt``, ``worker``, ``host``, ``devices``,
    ``ranks``, ``heard_at``, ``silent_seconds`` (null unless too many), ``stage``, ``step``,
    ``max_steps``, ``loss``, ``tokens_per_second``, ``seconds_left``, ``perplexity``, ``bleu``,
    ``seconds`` and ``failures``, each with ``attempt``, ``reason``, ``lines`` and ``at``. What is
    not known is null.
    """
    return {
        "title": status.title,
        "at": status.at,
        "seconds_left": status.seconds_left,
        "counts": dict(status.counts),
        "hosts": [to_dict(host) for host in status.hosts],
        "runs": [_run(run, status) for run in status.runs],
    }


def _run(run: Run, status: Status) -> dict[str, Any]:
    progress = run.progress
    figures = ("stage", "step", "max_steps", "loss", "tokens_per_second")
    return {
        "name": run.name,
        "state": run.state,
        "attempt": run.attempt,
        "worker": run.worker,
        "host": run.host,
        "devices": list(run.devices),
        "ranks": run.ranks,
        "heard_at": run.heard_at,
        "silent_seconds": status.silent_for(run),
        **{name: getattr(progress, name, None) for name in figures},
        "seconds_left": run.seconds_left,
        "perplexity": run.perplexity,
        "bleu": run.bleu,
        "seconds": run.seconds,
        "failures": [to_dict(failure) for failure in run.failures],
    }
