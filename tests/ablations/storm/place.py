"""The table of a storm, the same table without faults, and their comparison."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ablations.tables.find import load_table
from ablations.tables.plan import make_plan
from ablations.tables.table import Cell
from experiments.run import run
from tests.ablations import stand_in
from tests.ablations.samples import prepare_stand_ins
from tests.ablations.search.samples import journal
from tests.experiments.samples import assert_same_end, outcome
from tests.samples import new_run, write_corpus
from transformer.files import read_json

ROOT = Path(__file__).parents[3]
_TABLE = """
from pathlib import Path

from ablations.tables.scale import scale
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE
from transformer.data.corpora.folders import folder_corpus

TABLE = Table(
    name="storm",
    title="A table in a storm",
    base=BASE,
    rows=(
        row("base"),
        # These have the base's training.
        row("beam1", beam_size=1),
        row("average3", average_checkpoints=3),
        row("h2", num_heads=2),
        row("h4", num_heads=4),
        row("ff1024", d_ff=1024),
        row("p0.0", dropout=0.0),
        row("muon", method="transformer.variants.optimizers:Muon"),
        row("ls0.0", label_smoothing=0.0),
        row("learned", positions="learned"),
    ),
    scales=(
        scale(
            "tiny",
            corpus=folder_corpus(Path({corpus!r})),
            divide_widths=16,
            divide_layers=6,
            max_steps={steps},
            vocab_size=61,
            tokens_per_batch=101,
            max_length=41,
            warmup_steps=13,
            precision="fp32",
            average_checkpoints=1,
            checkpoint_every_steps={every},
            validate_every_steps={validate},
            log_every_steps=1,
        ),
    ),
)
"""


class Place:
    """A folder with the ``table``, its ``texts``, the ``cache`` where they are prepared, and the
    directory ``out`` of the runs; ``step_seconds`` is the time of a stand-in's step, None for real
    training.
    """

    def __init__(self, folder: Path, step_seconds: float | None) -> None:
        self.folder, self.step_seconds = folder, step_seconds
        self.out, self.table = folder / "out", folder / "storm.py"
        self.cache, self.texts = folder / "cache", folder / "numbers"

    @property
    def cells(self) -> list[Cell]:
        """All runs of the table."""
        return [Cell(row.name, 1) for row in load_table(str(self.table)).rows]

    @property
    def run(self) -> list[str | Path]:
        """The arguments that run the table."""
        return ["run", self.table, "--scale", "tiny", "--directory", self.out]

    def command(self, *arguments: str | Path) -> list[str]:
        """``python -m ablations ARGUMENTS``."""
        real = self.step_seconds is None
        module = "ablations.__main__" if real else "tests.ablations.with_stand_ins"
        return [sys.executable, "-m", module, *map(str, arguments)]

    def environment(self, **more: str) -> Mapping[str, str]:
        """The variables of a driver and its processes."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
            ),
            "CUDA_VISIBLE_DEVICES": "",
            "DATA_CACHE": str(self.cache),
            "OMP_NUM_THREADS": "1",
            "WANDB_MODE": "disabled",
            **more,
        }


def make_place(folder: Path, *, steps: int, every: int, step_seconds: float | None) -> Place:
    """Write the table and its corpus; a checkpoint comes each ``every`` of ``steps`` steps."""
    place = Place(folder, step_seconds)
    corpus = write_corpus(place.texts)
    text = _TABLE.format(corpus=str(corpus), steps=steps, every=every, validate=steps // 2)
    place.table.write_text(text, encoding="utf-8")
    if step_seconds is not None:
        prepare_stand_ins(place.out, {}, step_seconds=step_seconds)
    return place


def run_undisturbed(place: Place, directory: Path) -> Path:
    """Run each cell below ``directory``, one after the other in this process."""
    table = load_table(str(place.table))
    plan = make_plan(table, table.scales[0], table.rows, (1,))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place.environment().items():
            patch.setenv(name, value)
        for cell in plan.cells:
            alone = cell.directory(directory)
            if place.step_seconds is None:
                run(plan.experiment(cell), alone, keep_checkpoints=False)
            else:
                new_run(alone, plan.experiment(cell))
                prepare_stand_ins(directory, {})
                settings = read_json(directory / stand_in.SETTINGS_FILE)
                assert stand_in.train(alone, str(cell), settings) == 0
    return directory


def assert_as_undisturbed(place: Place, undisturbed: Path) -> None:
    """Each cell once, none left over, and each bit by bit the undisturbed one's."""
    leftovers = [path.name for path in place.out.glob("*/seed-*") if "attempt" in path.name]
    assert leftovers == []
    for cell in place.cells:
        found, expected = cell.directory(place.out), cell.directory(undisturbed)
        assert outcome(found) == outcome(expected), cell
        hypotheses = "valid.hypotheses.txt"
        assert (found / hypotheses).read_bytes() == (expected / hypotheses).read_bytes(), cell
        if place.step_seconds is None:
            assert_same_end(found, expected)
        else:
            assert _losses(found) == _losses(expected), cell
            starts = [int(step) for step in (found / stand_in.STARTS_FILE).read_text().split()]
            assert starts == sorted(starts), f"{cell} lost a checkpoint"
    names = [trial.user_attrs["cell"] for trial in journal(place.out)]
    assert sorted(names) == sorted(map(str, place.cells))  # each is one trial


def assert_tidy(place: Place) -> None:
    """No file is half-written, and no log has a traceback."""
    kept = [path for top in (place.out, place.cache) for path in top.rglob("*")]
    unfinished = (".part", ".tmp", ".work")
    assert [path for path in kept if any(word in path.name for word in unfinished)] == []
    logs = [*place.folder.glob("*/log.txt"), *place.out.glob("*/*/log.txt")]
    assert logs
    for log in logs:
        assert "Traceback" not in log.read_text(encoding="utf-8", errors="replace"), log


def _losses(directory: Path) -> list[float]:
    """The losses in a stand-in's last checkpoint."""
    return stand_in.losses_of(max((directory / "checkpoints").glob("step-*.ckpt")))
