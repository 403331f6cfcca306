"""An estimate for a person, and for a program."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from ablations.costs.estimate import Estimate, RowCost, too_large
from ablations.costs.rounding import large_size, long_time, two_digits
from transformer.formats import millions


def describe(estimate: Estimate) -> Iterator[str]:
    """The whole estimate, line by line, with what it stands on first."""
    rows, seeds, places = len(estimate.rows), len(estimate.seeds), estimate.places
    yield f"{estimate.title} at scale {estimate.scale} on {estimate.corpus_name}"
    yield (
        f"{rows} row{'s' * (rows > 1)} by {seeds} seed{'s' * (seeds > 1)}, {estimate.runs} runs, "
        f"{places.at_once} at a time; devices: {places.devices} of {estimate.basis.device}"
    )
    yield f"by {estimate.basis.text}"
    yield ""
    yield from _grid(estimate)
    yield ""
    yield (
        f"in all: {estimate.flops:.1e} FLOPs, {long_time(estimate.seconds)} by the clock, "
        f"{two_digits(estimate.device_seconds / 3_600)} device hours"
    )
    yield from _remarks(estimate)


def _grid(estimate: Estimate) -> Iterator[str]:
    width = max(len(row.name) for row in estimate.rows)
    head = ("params", "FLOPs", "a run", "memory", "disk")
    yield f"{'row':{width}}" + "".join(f"{name:>10}" for name in head)
    for row in estimate.rows:
        yield f"{row.name:{width}}" + "".join(f"{value:>10}" for value in _cells(row))


def _cells(row: RowCost) -> tuple[str, ...]:
    return (
        f"{millions(row.parameters)}M",
        f"{row.flops:.1e}",
        long_time(row.seconds),
        large_size(row.memory_bytes),
        large_size(row.disk_bytes),
    )


def _remarks(estimate: Estimate) -> Iterator[str]:
    disk = f"disk: {large_size(estimate.disk_bytes)} of checkpoints"
    corpus = estimate.corpus
    if corpus is not None:
        disk += (
            f"; the corpus {large_size(corpus.disk_bytes)}, of which "
            f"{large_size(corpus.fetched_bytes)} are still to be fetched, and "
            f"{long_time(corpus.seconds)} of a core to prepare it"
        )
    yield disk
    if not estimate.basis.hardware.gpu:
        yield "memory: of what is in use; the C library may hold back twice as much"
    places = estimate.places
    if places.devices_per_trial > 1:
        yield f"{places.devices_per_trial} devices are taken to be as many times as fast as one"
    if places.sharing > 1:
        yield f"{places.sharing:.3g} runs at a time on a device are taken to share its speed"
    large = too_large(estimate)
    if large:
        yield (
            f"too large for the memory of one {estimate.basis.device}: {', '.join(large)}; "
            f"{'lower --trials-per-device or ' * (places.sharing > 1)}raise --devices-per-trial"
        )


def to_json(estimate: Estimate) -> dict[str, Any]:
    """The estimate for a program: keys that stay, times in seconds, sizes in bytes.

    ``table`` (title), ``scale``, ``corpus``, ``seeds``, ``devices``, ``devices_per_trial``,
    ``at_once`` (runs at a time), ``basis`` (``text``, ``device``, ``precision``), ``rows`` (each
    ``name``, ``parameters``, and for one run ``flops``, ``seconds``, ``memory_bytes`` on a device,
    ``disk_bytes``), ``total`` (``runs``, ``flops``, ``seconds`` by the clock, ``device_seconds``,
    ``disk_bytes``), ``corpus_cost`` (``fetched_bytes``, ``disk_bytes``, ``seconds``; null for a
    small one) and ``too_large`` (names of rows that do not fit).
    """
    basis = estimate.basis
    names = ("name", "parameters", "flops", "seconds", "memory_bytes", "disk_bytes")
    totals = ("runs", "flops", "seconds", "device_seconds", "disk_bytes")
    corpus = ("fetched_bytes", "disk_bytes", "seconds")
    return {
        "table": estimate.title,
        "scale": estimate.scale,
        "corpus": estimate.corpus_name,
        "seeds": list(estimate.seeds),
        **dataclasses.asdict(estimate.places),
        "basis": {
            "text": basis.text,
            "device": basis.device,
            "precision": "bf16" if basis.hardware.half else "fp32",
        },
        "rows": [{name: getattr(row, name) for name in names} for row in estimate.rows],
        "total": {name: getattr(estimate, name) for name in totals},
        "corpus_cost": estimate.corpus
        and {name: getattr(estimate.corpus, name) for name in corpus},
        "too_large": list(too_large(estimate)),
    }
