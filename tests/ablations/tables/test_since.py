"""The table of changes since 2017, and rows and spaces that name a variant."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablations.search.space import choice
from ablations.tables.plan import claim_plan, make_plan
from ablations.tables.scales import QUICK, SMALL
from ablations.tables.since import TABLE
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE
from transformer.errors import InputError
from transformer.variants.layers import GeluTransformer, SwiGLUTransformer

ROOM = Path(__file__).parents[3] / "transformer" / "variants"


def test_each_row_is_one_change_to_the_papers_base() -> None:
    assert TABLE.base == BASE and not TABLE.rows[0].changes
    for each in TABLE.rows[1:]:
        assert each.reference in ("better", "same", "worse")
        assert "model" in each.changes
        more = set(each.changes) - {"model"}
        assert not more or each.name in ("adamw-cosine", "modern")


def test_every_row_has_a_configuration_at_the_laptops_scales() -> None:
    for scale in (QUICK, SMALL):
        for each in TABLE.rows:
            assert TABLE.configure(each, scale).model.model == each.changes.get("model")


def test_a_row_takes_a_class_or_its_path() -> None:
    path = "transformer.variants.layers:GeluTransformer"
    assert row("a", model=GeluTransformer).changes == row("b", model=path).changes
    with pytest.raises(InputError, match="row 'a': there is no Missing in"):
        row("a", model="transformer.variants.layers:Missing")


def test_a_directory_refuses_a_changed_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(name="own", title="", base=BASE, rows=(row("gelu", model=GeluTransformer),))
    claim_plan(tmp_path, make_plan(table, QUICK, table.rows, [1]))
    monkeypatch.setattr("ablations.tables.table.variant_name", lambda _: "a:B@01234567")
    changed = Table(name="own", title="", base=BASE, rows=(row("gelu", model=GeluTransformer),))
    with pytest.raises(InputError, match=r"rows\.gelu\.model: .*GeluTransformer@.* -> 'a:B@0"):
        claim_plan(tmp_path, make_plan(changed, QUICK, changed.rows, [1]))


def test_a_search_chooses_among_variants() -> None:
    parameter = choice("model", None, GeluTransformer, SwiGLUTransformer)
    assert parameter.choices[1] == row("a", model=GeluTransformer).changes.get("model")
    shown = parameter.shown()
    assert shown.choices == ("the paper's", "GeluTransformer", "SwiGLUTransformer")
    assert parameter.unmapped(parameter.choices[2], shown) == "SwiGLUTransformer"


def test_the_room_of_the_variants_is_small() -> None:
    files = [*ROOM.glob("*.py"), ROOM.parents[1] / "ablations" / "tables" / "since.py"]
    assert sum(len(file.read_text().splitlines()) for file in files) <= 500
