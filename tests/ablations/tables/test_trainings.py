"""Rows that share a training, the checkpoints that it keeps, and the table of decoding."""

from __future__ import annotations

import pytest

from ablations.tables.changes import CHANGES
from ablations.tables.decoding import TABLE
from ablations.tables.find import find_scale
from ablations.tables.plan import Plan, make_plan
from ablations.tables.scale import Scale
from ablations.tables.scales import QUICK, SCALES
from ablations.tables.table import Row, Table, row
from ablations.tables.table3 import BASE
from ablations.tables.trainings import (
    Training,
    is_equal_by_construction,
    trainings_of,
    written_checkpoints,
)
from tests.ablations.samples import TINY
from transformer.config import Config, TrainingConfig, override
from transformer.data.corpora.declared import WMT14_EN_FR
from transformer.errors import InputError

# What a row may change without another training.
FREE = {
    **{"beam_size": 3, "length_penalty": 0.7, "max_extra_length": 11},
    **{"average_checkpoints": 13, "also_average": 17},
}


def plan_of(*rows: Row, scale: Scale = TINY, seeded: tuple[Row, ...] | None = None) -> Plan:
    table = Table(name="mine", title="Mine", base=BASE, rows=rows)
    return make_plan(table, scale, rows if seeded is None else seeded, (1, 2))


def shares(config: Config) -> bool:
    """Whether a row with this configuration has the base's training."""
    return len(trainings_of({"base": BASE, "other": config})) == 1


@pytest.mark.parametrize("name", FREE)
def test_decoding_and_averaging_share_the_training(name: str) -> None:
    assert shares(override(BASE, **{name: FREE[name]}))


def test_all_else_has_a_training_of_its_own() -> None:
    others = {
        **{"vocab_size": 900, "num_layers": 3, "d_model": 64, "d_ff": 31, "num_heads": 7},
        **{"d_k": 17, "d_v": 19, "dropout": 0.3, "positions": "learned", "max_positions": 41},
        **{
            "model": "module:Class@0123",
            "method": "module:Class@0123",
            "tokens_per_batch": 700,
            "max_length": 43,
        },
        **{"max_length_ratio": 3.0, "drop_duplicates": True, "max_steps": 11, "warmup_steps": 5},
        **{"schedule": "linear", "learning_rate_factor": 0.3, "adam_beta1": 0.8},
        **{"adam_beta2": 0.9, "adam_epsilon": 1e-8, "label_smoothing": 0.2, "clip_norm": 1.0},
        **{"precision": "fp32", "threads": 2, "checkpoint_every_steps": 7},
        **{"validate_every_steps": 3, "log_every_steps": 2},
    }
    assert others.keys() | FREE.keys() | {"target_language"} == CHANGES.keys()
    for name, value in others.items():
        assert not shares(override(BASE, **{name: value})), name
    assert not shares(override(BASE, seed=2))
    assert not shares(override(BASE, corpus=WMT14_EN_FR))


def test_a_training_keeps_as_many_checkpoints_as_a_row_of_its_table_needs() -> None:
    rows = (
        row("base"),
        row("wide", d_ff=1024, average_checkpoints=3),
        row("beam", beam_size=9),
        row("mean", average_checkpoints=7),
        row("wide-mean", d_ff=1024, also_average=5),
    )
    expected = (
        Training(rows=("base", "beam", "mean"), checkpoints=7),
        Training(rows=("wide", "wide-mean"), checkpoints=5),
    )
    # A row that is not run yet counts too.
    assert plan_of(*rows, seeded=rows[:1]).trainings == expected
    assert trainings_of({"a": BASE, "b": override(BASE, seed=2)}) == (
        Training(rows=("a",), checkpoints=1),
        Training(rows=("b",), checkpoints=1),
    )


@pytest.mark.parametrize(
    ("steps", "every", "written"), [(1_600, 400, 4), (1_601, 400, 5), (7, 400, 1)]
)
def test_checkpoints_that_a_training_writes(steps: int, every: int, written: int) -> None:
    config = TrainingConfig(max_steps=steps, checkpoint_every_steps=every)
    assert written_checkpoints(config) == written
    assert written_checkpoints(TrainingConfig(checkpoint_every_minutes=10.0)) is None


def test_a_row_that_averages_more_checkpoints_than_there_are_is_refused() -> None:
    rows = (row("base"), row("mean", average_checkpoints=5))
    message = (
        "row 'mean' averages 5 checkpoints, but its training writes 4, one every 400 of 1,600 "
        "steps: average fewer, or set checkpoint_every_steps lower"
    )
    with pytest.raises(InputError, match=message):
        plan_of(*rows, scale=QUICK)
    assert plan_of(*rows, scale=QUICK, seeded=rows[:1]).cells
    assert plan_of(row("base", average_checkpoints=4), scale=QUICK).cells


def test_scores_that_are_equal_by_construction() -> None:
    beam, mean = override(BASE, beam_size=9), override(BASE, average_checkpoints=9)
    also = override(BASE, also_average=3)
    for measure, differs in (
        ("perplexity", {"mean"}),
        ("bleu", {"beam", "mean"}),
        ("test_f1", {"beam", "mean"}),
    ):
        rows = {"beam": beam, "mean": mean, "also": also}
        found = {x for x in rows if not is_equal_by_construction(BASE, rows[x], measure)}
        assert found == differs


def test_the_table_of_decoding_has_one_training_at_each_scale() -> None:
    for name in (scale.name for scale in SCALES):
        plan = make_plan(TABLE, find_scale(TABLE, name), TABLE.rows, (1,))
        (training,) = plan.trainings
        assert training.checkpoints == 20 and training.rows == tuple(x.name for x in TABLE.rows)
        # Ten minutes of twelve hours, or 1,500 of 100,000 steps.
        config = plan.base.training
        assert config.checkpoint_every_steps / config.max_steps == pytest.approx(0.015)
        configs = plan.configs.values()
        assert {x.decoding.beam_size for x in configs} == {1, 2, 4, 8, 16}
        assert {x.decoding.length_penalty for x in configs} == {0.0, 0.6, 1.0}
        assert {x.training.average_checkpoints for x in configs} == {1, 5, 10, 20}
        assert {x.training.also_average for x in configs} == {None}
