"""Rows, tables and scales, built in and in a user's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from ablations.tables.changes import CHANGES, Value, columns
from ablations.tables.find import find_scale, load_table, select_rows
from ablations.tables.plan import Plan, make_plan
from ablations.tables.scale import scale
from ablations.tables.scales import PAPER, QUICK, SCALES, SMALL
from ablations.tables.table import Row, Table, row
from ablations.tables.table3 import BASE, TABLE
from tests.ablations.samples import CORPUS, TINY
from transformer.config import Config, config_fields, from_dict, override, to_dict
from transformer.errors import InputError

OWN_TABLE = """
from ablations.tables import BASE, Table, row

TABLE = Table(
    name="depth",
    title="Narrow and deep",
    base=BASE,
    rows=(row("base"), row("deep", num_layers=12, d_model=256, d_k=32, d_v=32)),
)
"""


BAD_NAMES = (
    *("", "a/b", "..", "a b", "-x", "a" * 101),
    *("wandb-id.txt", "Table.JSON", "config.json", "study.sqlite3-wal", "figures", "Wandb"),
)


def table(*rows: Row, name: str = "t", base: Config = BASE) -> Table:
    return Table(name=name, title="", base=base, rows=rows or (row("a"),))


def planned(*measures: str) -> Plan:
    return make_plan(replace(table(), measures=measures), TINY, (), (1,))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda: row("x", **cast(Any, {"num_head": 4})),
            "unknown setting 'num_head': did you mean 'num_heads'",
        ),
        (lambda: scale("x", corpus=CORPUS, **cast(Any, {"warm_up_steps": 4})), "warmup_steps"),
        (lambda: scale("x", corpus=CORPUS, longer=cast(Any, {"also_averag": 4})), "also_average"),
        (
            lambda: row("a", dropout=cast(Any, "0.1")),
            r"row 'a': dropout is '0\.1', but must be a number",
        ),
        (
            lambda: row("a", num_layers=cast(Any, 2.0)),
            r"num_layers is 2\.0, but must be a whole number",
        ),
        (lambda: row("a", d_ff=True), "d_ff is True, but must be a whole number"),
        (lambda: row("a", positions=cast(Any, 3)), "positions is 3.*one of sinusoidal, learned"),
        (lambda: row("a", schedule=cast(Any, None)), "schedule is None, but must be one of inv"),
        (lambda: row("a", clip_norm=cast(Any, "1")), "clip_norm is '1'.* a number or none"),
        (lambda: row("a", drop_duplicates=cast(Any, 1)), "duplicates is 1, but must be true or f"),
        (lambda: row("a", **cast(Any, {"seed": 3})), "row 'a': a row cannot change seed: docs/tab"),
        (lambda: scale("x", corpus=CORPUS, **cast(Any, {"d_ff": 8})), "scale cannot change d_ff"),
        (lambda: scale("x", corpus=CORPUS, schedule=cast(Any, "flat")), "schedule is 'flat'"),
        (lambda: replace(table(), rows=()), "table 't' has no rows"),
        (lambda: table(name="a/b"), "table name 'a/b' may have only"),
        (lambda: table(row("a"), row("A", d_ff=8)), "two rows named 'a'"),
        (
            lambda: table().configure(row("a", num_heads=0), QUICK),
            r"row 'a' of 't' at scale 'quick': num_heads is 0",
        ),
        (
            lambda: table().configure(row("odd", d_k=12), TINY),
            r"row 'odd' of 't' at scale 'tiny': d_k is 12.*by 8.*paper's units, so 8, 16, 24, …",
        ),
        (
            lambda: table(base=override(BASE, num_layers=1)).configure(None, SMALL),
            "the base of 't' at.*num_layers is 1, which scale 'small' cannot divide by 2.* 2, 4,",
        ),
        (
            lambda: table(base=override(BASE, corpus=CORPUS)).configure(None, QUICK),
            "the base of 't' at.* corpus is toy, which scale 'quick' would replace by cldr_en_de",
        ),
        (
            lambda: table().configure(row("a", d_model=8), TINY),
            "d_model is 8, .*so 16, 32, 48, … fit",
        ),
        *((partial(row, name), "row name .* may have only") for name in BAD_NAMES),
        (partial(planned, "blue"), "unknown measure 'blue': did you mean 'bleu'"),
        (partial(planned, "perplexity", "f1"), "measure 'f1' is not one of translation"),
        (partial(planned, "test_bleu"), "table 't' needs a score of validation, like perplexity"),
    ],
)
def test_an_invalid_declaration_is_refused(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        declare()


def test_a_row_may_change_each_field_that_rows_need_not_share() -> None:
    shared = {"corpus", "seed", "compile", "checkpoint_every_minutes"}
    fields = {name: kind for name, (_, kind) in config_fields().items() if name not in shared}
    assert fields | {"target_language": str} == CHANGES


OTHER: dict[str, Value] = {
    "vocab_size": 5_000,
    "positions": "learned",
    "max_length_ratio": 2.5,
    "drop_duplicates": True,
    "warmup_steps": 123,
    "clip_norm": 2.0,
    "threads": 2,
    "also_average": 4,
    "beam_size": 1,
}


@pytest.mark.parametrize("where", ["row", "base", "scale"])
@pytest.mark.parametrize("name", OTHER)
def test_what_a_row_or_a_base_sets_is_kept_at_a_scale(name: str, where: str) -> None:
    changes = cast(Any, {name: OTHER[name]})
    base = override(BASE, **changes) if where == "base" else BASE
    own = table(row("a", **changes) if where == "row" else row("a"), base=base)
    chosen = scale("own", corpus=CORPUS, **changes) if where == "scale" else TINY
    plan = make_plan(own, chosen, own.rows, (1,))
    assert columns(plan.configs["a"])[name] == OTHER[name]
    unchanged = columns(TABLE.configure(None, chosen))
    others = {x: value for x, value in columns(plan.configs["a"]).items() if x != name}
    assert others == {x: value for x, value in unchanged.items() if x != name}
    assert plan.rows[0].changed(plan.base) == ({name} if where == "row" else set())
    assert plan == from_dict(Plan, to_dict(plan))


def test_a_row_may_set_the_papers_own_value() -> None:
    own = table(row("hot", learning_rate_factor=1.0, clip_norm=None, tokens_per_batch=100))
    training = own.configure(own.rows[0], QUICK).training
    assert (training.learning_rate_factor, training.clip_norm) == (1.0, None)
    assert own.configure(own.rows[0], QUICK).data.tokens_per_batch == 100  # less than BASE allows


def test_a_scale_says_what_it_sets_and_what_it_leaves() -> None:
    base = override(BASE, max_steps=50_000, warmup_steps=2_000)
    sets, kept = SMALL.describe(base)
    assert "widths / 8, N / 2, dropout / 2; 6,000 steps for the base's 50,000; it sets voc" in sets
    assert "warmup_steps" not in sets and "clip_norm=1.0" in sets
    assert kept == "kept as the table's base sets it: warmup_steps=2000 (the scale's: 1600)"
    (sets,) = PAPER.describe(BASE)
    assert sets.startswith("the scale: sizes undivided; ")
    assert sets.endswith("in longer rows also_average=20, checkpoint_every_steps=600")


@pytest.mark.parametrize("chosen", [QUICK, SMALL, PAPER, TINY], ids=lambda chosen: chosen.name)
def test_every_row_fits_every_scale_and_keeps_its_order(chosen: Any) -> None:
    paper = [columns(TABLE.configure(row, PAPER)) for row in TABLE.rows]
    scaled = [columns(TABLE.configure(row, chosen)) for row in TABLE.rows]
    for before, after in zip(paper, scaled, strict=True):
        for name in ("d_model", "d_ff", "d_k", "d_v"):
            assert cast(int, after[name]) * chosen.divide_widths == before[name]
        assert cast(int, after["num_layers"]) * chosen.divide_layers == before["num_layers"]
        assert cast(float, after["dropout"]) * chosen.divide_dropout == before["dropout"]
        for name in ("num_heads", "label_smoothing", "positions"):
            assert after[name] == before[name]
    steps = [cast(int, found["max_steps"]) for found in scaled]
    assert steps[-1] == 3 * steps[0] and set(steps[:-1]) == {chosen.max_steps}


def test_the_scale_paper_is_the_identity_but_for_averages() -> None:
    # As the paper's two models of Table 2, see tests/experiments/catalog/test_paper.py.
    of_base = {"also_average": 5, "checkpoint_every_steps": 1_500}
    of_big = {"also_average": 20, "checkpoint_every_steps": 600}
    for row_ in TABLE.rows:
        changes = of_big if row_.name == "big" else of_base
        expected = override(BASE, **row_.changes, **changes)
        assert to_dict(TABLE.configure(row_, PAPER)) == to_dict(expected)


def test_a_users_file_declares_a_table_and_if_it_fails_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "my_table.py"
    path.write_text(OWN_TABLE)
    found = load_table(str(path))
    assert [r.name for r in found.rows] == ["base", "deep"]
    assert columns(found.configure(found.rows[1], QUICK))["num_layers"] == 6
    for text, message in (
        ("TABLE = 3", "declares no TABLE"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("from ablations.tables import row\nrow('x', dmodel=3)", "did you mean 'd_model'"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            load_table(str(path))


def test_rows_and_scales_are_found_by_name() -> None:
    own = Table(name="t", title="", base=BASE, rows=(row("a"),), scales=(TINY,))
    assert find_scale(own, "tiny") is TINY
    assert [find_scale(own, known.name) for known in SCALES] == list(SCALES)
    assert [found.name for found in select_rows(TABLE, "E, base")] == ["base", "E"]
