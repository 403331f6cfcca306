"""The places for runs that a machine has."""

from __future__ import annotations

from typing import Any

import pytest

from ablations.runs.options import Places
from transformer.errors import InputError

TWO, THREE, CORE = ((2,), 1), ((3,), 1), ((), 1)


@pytest.mark.parametrize(
    ("visible", "settings", "threads", "expected"),
    [
        ("2,3", {}, 1, [TWO, THREE]),
        ("2,3", {"workers": 3}, 1, [TWO, THREE, TWO]),
        ("2,3", {"trials_per_device": 2}, 1, [TWO, THREE] * 2),
        ("2,3", {"devices_per_trial": 2}, 1, [((2, 3), 2)]),
        ("2,3", {"devices_per_trial": 2, "trials_per_device": 2}, 1, [((2, 3), 2)] * 2),
        ("0,1,2,3,4", {"devices_per_trial": 2}, 1, [((0, 1), 2), ((2, 3), 2)]),
        ("GPU-8932f937-d72c", {}, 1, [(("GPU-8932f937-d72c",), 1)]),
        ("MIG-1a, MIG-2b", {}, 1, [(("MIG-1a",), 1), (("MIG-2b",), 1)]),
        ("1,-1,2", {}, 1, [((1,), 1)]),
        ("NoDevFiles", {}, None, [CORE] * 9),
        ("", {}, None, [CORE] * 9),
        ("", {}, 3, [CORE] * 3),
        ("", {}, 10, [CORE]),
        ("", {"workers": 4}, 1, [CORE] * 4),
        ("", {"devices_per_trial": 3}, 1, [((), 3)] * 3),
        ("", {"trials_per_device": 2}, 1, [CORE] * 18),
        ("", {"devices_per_trial": 10}, 1, "cores here: 9, and no GPU"),
        ("1,3", {"devices_per_trial": 10}, 1, "GPUs here: 2"),
    ],
)
def test_gpus_or_cores_are_shared_out(
    visible: str,
    settings: dict[str, int],
    threads: int | None,
    expected: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ablations.runs.options.count_cores", lambda: 9)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if isinstance(expected, str):
        with pytest.raises(InputError, match=f"--devices-per-trial is 10, but {expected}"):
            Places(**settings).here(threads)
        return
    found = Places(**settings).here(threads)
    assert [(place.devices, place.ranks) for place in found] == expected
    assert [place.number for place in found] == list(range(len(found)))
