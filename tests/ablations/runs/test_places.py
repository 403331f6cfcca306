"""The places for runs that a machine has."""

from __future__ import annotations

import pytest

from ablations.runs.places import find_places
from transformer.errors import InputError


@pytest.fixture(autouse=True)
def nine_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablations.runs.places.count_cores", lambda: 9)


def places(**settings: int) -> list[tuple[tuple[int | str, ...], int]]:
    found = find_places(**settings)
    assert [place.number for place in found] == list(range(len(found)))
    return [(place.devices, place.ranks) for place in found]


def test_gpus_and_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    two, three = ((2,), 1), ((3,), 1)
    assert places() == [two, three]
    assert places(workers=3) == [two, three, two]
    assert places(trials_per_device=2) == [two, three] * 2
    assert places(devices_per_trial=2) == [((2, 3), 2)]
    assert places(devices_per_trial=2, trials_per_device=2) == [((2, 3), 2)] * 2


def test_gpus_that_fill_no_group_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4")
    assert [place.devices for place in find_places(devices_per_trial=2)] == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        ("GPU-8932f937-d72c", [("GPU-8932f937-d72c",)]),
        ("MIG-1a, MIG-2b", [("MIG-1a",), ("MIG-2b",)]),
        ("1,-1,2", [(1,)]),
        ("NoDevFiles", [()] * 9),
    ],
)
def test_gpus_may_have_names(
    monkeypatch: pytest.MonkeyPatch, visible: str, devices: list[tuple[int | str, ...]]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [place.devices for place in find_places()] == devices


def test_the_cpu_has_a_place_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert places() == [((), 1)] * 9
    assert places(workers=4) == [((), 1)] * 4
    assert places(devices_per_trial=3) == [((), 3)] * 3
    assert places(trials_per_device=2) == [((), 1)] * 18
    assert places(threads=3) == [((), 1)] * 3
    assert places(threads=10) == [((), 1)]


@pytest.mark.parametrize(
    ("visible", "settings", "message"),
    [
        ("", {"workers": 0}, "--workers is 0"),
        ("", {"trials_per_device": 0}, "--trials-per-device is 0"),
        ("", {"devices_per_trial": -1}, "--devices-per-trial is -1"),
        ("", {"devices_per_trial": 10}, "--devices-per-trial is 10, but cores here: 9, and no GPU"),
        ("7", {"devices_per_trial": 2}, "--devices-per-trial is 2, but GPUs here: 1"),
        ("1,3", {"devices_per_trial": 4}, "but GPUs here: 2"),
    ],
)
def test_more_than_the_machine_has_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, visible: str, settings: dict[str, int], message: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(InputError, match=message):
        find_places(**settings)
