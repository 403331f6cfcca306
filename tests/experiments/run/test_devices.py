"""How many processes a run has, by the command line or by torchrun."""

from __future__ import annotations

import pytest

from experiments.run.devices import World, find_world, is_first_rank
from transformer.errors import InputError


def _launch(monkeypatch: pytest.MonkeyPatch, *, local: int, size: int, rank: int = 0) -> None:
    values = {"LOCAL_WORLD_SIZE": local, "WORLD_SIZE": size, "RANK": rank}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")


@pytest.mark.parametrize(("devices", "expected"), [(None, World(1)), (3, World(3))])
def test_without_torchrun_it_is_as_one_says(devices: int | None, expected: World):
    assert find_world(devices) == expected


@pytest.mark.parametrize("devices", [None, 3])
def test_torchrun_says_how_many_on_how_many_machines(
    devices: int | None, monkeypatch: pytest.MonkeyPatch
):
    _launch(monkeypatch, local=3, size=6)
    assert find_world(devices) == World(3, nodes=2)
    assert find_world(devices).size == 6


def test_devices_that_contradict_torchrun_are_refused(monkeypatch: pytest.MonkeyPatch):
    _launch(monkeypatch, local=3, size=3)
    with pytest.raises(InputError, match="devices is 2, but torchrun has started 3 processes"):
        find_world(2)


def test_machines_with_different_numbers_of_processes_are_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    _launch(monkeypatch, local=3, size=5)
    with pytest.raises(InputError, match="3 processes here and 5 in all"):
        find_world(None)


def test_no_device_is_refused():
    with pytest.raises(InputError, match="devices is 0, but must be at least 1"):
        find_world(0)


def test_the_first_rank_is_that_of_all_machines(monkeypatch: pytest.MonkeyPatch):
    assert is_first_rank()
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert is_first_rank()
    _launch(monkeypatch, local=2, size=4, rank=2)
    assert not is_first_rank()
