"""The places for runs that a machine has."""

from __future__ import annotations

import pytest

from ablations.runs.options import Places
from transformer.errors import InputError

TWO, THREE, CORE = ((2,), 1), ((3,), 1), ((), 1)


@pytest.mark.parametrize(
    ("visible", "settings", "expected"),
    [
        ("2,3", {}, [TWO, THREE]),
        ("2,3", {"workers": 3}, [TWO, THREE, TWO]),
        ("2,3", {"trials_per_device": 2}, [TWO, THREE] * 2),
        ("2,3", {"devices_per_trial": 2}, [((2, 3), 2)]),
        ("2,3", {"devices_per_trial": 2, "trials_per_device": 2}, [((2, 3), 2)] * 2),
        ("0,1,2,3,4", {"devices_per_trial": 2}, [((0, 1), 2), ((2, 3), 2)]),
        ("GPU-8932f937-d72c", {}, [(("GPU-8932f937-d72c",), 1)]),
        ("MIG-1a, MIG-2b", {}, [(("MIG-1a",), 1), (("MIG-2b",), 1)]),
        ("1,-1,2", {}, [((1,), 1)]),
        ("NoDevFiles", {}, [CORE] * 9),
        ("", {}, [CORE] * 9),
        ("", {"workers": 4}, [CORE] * 4),
        ("", {"devices_per_trial": 3}, [((), 3)] * 3),
        ("", {"trials_per_device": 2}, [CORE] * 18),
    ],
)
def test_gpus_or_cores_are_shared_out(
    visible: str,
    settings: dict[str, int],
    expected: list[tuple[tuple[int | str, ...], int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ablations.runs.options.count_cores", lambda: 9)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = Places(**settings).here(None)
    assert [(place.devices, place.ranks) for place in found] == expected
    assert [place.number for place in found] == list(range(len(found)))


@pytest.mark.parametrize(("threads", "count"), [(3, 3), (10, 1)])
def test_a_run_of_several_threads_has_several_cores(
    threads: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablations.runs.options.count_cores", lambda: 9)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert len(Places().here(threads)) == count


@pytest.mark.parametrize(
    ("visible", "message"),
    [
        ("", "--devices-per-trial is 10, but cores here: 9, and no GPU"),
        ("1,3", "--devices-per-trial is 10, but GPUs here: 2"),
    ],
)
def test_more_than_the_machine_has_is_bad_input(
    visible: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablations.runs.options.count_cores", lambda: 9)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(InputError, match=message):
        Places(devices_per_trial=10).here(None)
