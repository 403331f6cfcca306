"""Whatever is killed, paused, cut or damaged, a table ends as if nothing was.

A failure prints the seed, the faults and their times, the ends of the drivers' logs, and where.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.ablations.storm.place import (
    Place,
    assert_as_undisturbed,
    assert_tidy,
    make_place,
    run_undisturbed,
)
from tests.ablations.storm.ray_cluster import RayCluster
from tests.ablations.storm.storm import RayStorm, Storm

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="a driver's processes are found in /proc"
)
OF_BOTH = {
    "kill_driver": 10,
    "kill_run": 8,
    "kill_supervisor": 6,
    "kill_all": 3,
    "pause_run": 4,
    "second_driver": 3,
    "fill_disk": 5,
    "flip_bit_of_run": 7,
    "flip_bit_of_data": 3,
    "damage_journal": 2,
}


def trained_table(folder: Path) -> Place:
    """Eight trainings that are real, each of some seconds, one of them shared by three rows."""
    return make_place(folder, steps=480, every=7, step_seconds=None)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same trained table without a driver."""
    place = trained_table(tmp_path_factory.mktemp("undisturbed"))
    return run_undisturbed(place, place.folder / "undisturbed")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("where", ["here", "on_ray"])
def test_a_trained_table_comes_through_a_storm(
    where: str, undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if where == "on_ray" and find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    place = trained_table(tmp_path)
    with ExitStack() as stack:
        if where == "here":
            storm = Storm(place, OF_BOTH | {"pause_all": 2}, pause=4)
        else:
            faults = OF_BOTH | {"kill_node": 6, "pause_node": 3}
            cluster = stack.enter_context(closing(RayCluster(tmp_path)))
            storm = RayStorm(cluster, place, faults, pause=12)
        stack.enter_context(storm)
        storm.run()
        assert_as_undisturbed(place, undisturbed)
        assert_tidy(place)
        assert not {*storm.left} - storm.struck.keys() and storm.struck.total() >= 50, "too calm"
    with capsys.disabled():
        print(f"\n{storm.summary()}")
