"""The places for runs that a machine has."""

from __future__ import annotations

import pytest

from ablations.runner.machine import Slot, slots
from transformer.errors import InputError


@pytest.fixture(autouse=True)
def nine_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablations.runner.machine.count_cores", lambda: 9)


def test_gpus_and_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert slots() == (Slot((2,)), Slot((3,)))
    assert slots(3) == (Slot((2,)), Slot((3,)), Slot((2,)))
    assert slots(trials_per_device=2) == (Slot((2,)), Slot((3,))) * 2
    assert slots(devices_per_trial=2) == (Slot((2, 3), 2),)
    assert slots(devices_per_trial=2, trials_per_device=2) == (Slot((2, 3), 2),) * 2


def test_gpus_that_fill_no_group_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4")
    assert [slot.devices for slot in slots(devices_per_trial=2)] == [(0, 1), (2, 3)]


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
    assert [slot.devices for slot in slots()] == devices


def test_the_cpu_has_a_place_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert slots() == (Slot(),) * 9
    assert slots(4) == (Slot(),) * 4
    assert slots(devices_per_trial=3) == (Slot((), 3),) * 3
    assert slots(trials_per_device=2) == (Slot(),) * 18
    assert slots(threads=3) == (Slot(),) * 3
    assert slots(threads=10) == (Slot(),)


@pytest.mark.parametrize(
    ("visible", "settings", "message"),
    [
        ("", {"workers": 0}, "--workers is 0"),
        ("", {"trials_per_device": 0}, "--trials-per-device is 0"),
        ("", {"devices_per_trial": -1}, "--devices-per-trial is -1"),
        ("", {"devices_per_trial": 10}, "--devices-per-trial is 10, but there are only 9 cores"),
        ("7", {"devices_per_trial": 2}, "--devices-per-trial is 2, but there is 1 GPU here"),
        ("1,3", {"devices_per_trial": 4}, "but there are 2 GPUs here"),
    ],
)
def test_more_than_the_machine_has_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, visible: str, settings: dict[str, int], message: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(InputError, match=message):
        slots(**settings)
