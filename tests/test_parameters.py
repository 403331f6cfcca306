"""Options of a class: read without importing it, checked, and given to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ablations.tables.changes import columns
from ablations.tables.plan import Plan, make_plan
from ablations.tables.scales import QUICK
from ablations.tables.table import Table, row
from ablations.tables.table3 import BASE
from experiments.catalog.find import find_experiment
from experiments.catalog.settings import with_settings
from tests.samples import TINY_MODEL, tiny
from transformer.config import Config, from_dict, override, to_dict, training_digest
from transformer.data.corpora.declared import MULTI30K_EN_DE
from transformer.errors import InputError
from transformer.fields import Options
from transformer.parameters import declared_options, resolve
from transformer.training.method import make_module
from transformer.variant import FILES_VARIABLE, build, variant_name

MINE = """
from typing import Literal

from parts import Base, imported
from transformer import Transformer, TransformerModule

if imported != 5:
    raise SystemExit("imported")


class Sink(Base, Transformer):
    def __init__(
        self, config, *, init: float = 1.0, count: int = -2,
        shape: Literal["flat", "steep"] = "flat",
        bound: "float | None" = None, deep: bool = False, **options,
    ):
        super().__init__(config, **options)
        self.given = init, count, shape, bound, deep


class Below(Sink):
    pass


class Decayed(TransformerModule):
    def __init__(self, config, *, rate: float = 0.5):
        super().__init__(config)
        self.rate = rate
"""
PARTS = """
from transformer import Transformer

imported = 5


class Base(Transformer):
    def __init__(self, config, *, width: int = 3):
        super().__init__(config)
        self.width = width
"""
DEFAULTS = {
    "init": 1.0, "count": -2, "shape": "flat", "bound": None, "deep": False, "width": 3,
}  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FILES_VARIABLE, "")
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    (tmp_path / "parts.py").write_text(PARTS)
    return path


def edited(mine: Path, old: str, new: str) -> None:
    assert old in MINE
    mine.write_text(MINE.replace(old, new))


def test_options_are_read_with_those_of_a_base_and_nothing_is_imported(mine: Path) -> None:
    edited(mine, "imported != 5", "True")
    for kind in ("Sink", "Below"):
        found = declared_options(variant_name(f"{mine}:{kind}"))
        assert {name: option.default for name, option in found.items()} == DEFAULTS
    assert resolve(variant_name(f"{mine}:Decayed"), {"rate": 1}) == (("rate", 1.0),)
    assert not declared_options("transformer.variants.modern:ModernTransformer@0")
    assert [*declared_options("transformer.variants.optimizers:AdamW@0")] == ["weight_decay"]


def test_a_class_may_extend_an_earlier_one_of_its_own_name(mine: Path) -> None:
    extended = "\n\nclass Sink(Sink):\n    pass\n"
    mine.write_text(MINE + extended)
    assert {*declared_options(variant_name(f"{mine}:Sink"))} == {*DEFAULTS}


def test_a_row_gives_options_to_its_model_and_its_method(mine: Path) -> None:
    model, method = f"{mine}:Below", f"{mine}:Decayed"
    rows = (
        row("base"),
        row("sink", model=model, options={"init": 2, "width": 4}),
        row("both", model=model, method=method, method_options={"rate": 0.25}, d_ff=1024),
    )
    table = Table(name="mine", title="", base=BASE, rows=rows)
    plan = make_plan(table, QUICK, rows, (1,))
    assert plan == from_dict(Plan, to_dict(plan))
    sink, both = plan.configs["sink"], plan.configs["both"]
    assert dict(sink.model.options) == {**DEFAULTS, "init": 2.0, "width": 4}
    assert dict(both.training.method_options) == {"rate": 0.25} and both.model.d_ff == 128
    assert columns(both)["Decayed.rate"] == 0.25 and columns(sink)["Below.init"] == 2.0
    assert {"Below.init", "Decayed.rate"} <= set(plan.shown)
    small = replace(both, model=replace(TINY_MODEL, model=both.model.model))
    built = build(replace(small.model, options=sink.model.options))
    assert getattr(built, "given", None) == (2.0, -2, "flat", None, False)
    assert getattr(built, "width", None) == 4
    assert getattr(make_module(small), "rate", None) == 0.25
    assert from_dict(Config, to_dict(sink)) == sink
    assert to_dict(sink)["model"]["options"]["init"] == 2.0
    assert training_digest(sink) != training_digest(override(sink, options=Options()))


def test_fields_that_are_not_set_are_not_written_and_count_in_no_digest() -> None:
    config = tiny(MULTI30K_EN_DE)
    written = to_dict(config)
    assert not {"method", "method_options"} & written["training"].keys()
    assert "options" not in written["model"]
    assert from_dict(Config, written) == config
    other = override(config, model="a:B@1", options=Options.of({"x": 1}))
    assert override(other, model=None).model == config.model
    assert override(other, model="a:B@1").model == other.model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inti": 1.0}, "row 'x': unknown option of Sink 'inti': did you mean 'init'?"),
        ({"init": "much"}, "init is 'much', but must be a number"),
        ({"init": float("inf")}, "init is inf, but must be a number"),
        ({"init": 10**400}, "init is too large a number"),
        ({"count": 1.5}, "count is 1.5, but must be a whole number"),
        ({"shape": "round"}, "shape is 'round', but must be one of flat, steep"),
        ({"deep": 1}, "deep is 1, but must be true or false"),
    ],
)
def test_a_wrong_option_is_refused(mine: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError) as caught:
        row("x", model=f"{mine}:Sink", options=options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("init: float = 1.0", "init=1.0", "option init of Sink needs a type and a default"),
        ("init: float = 1.0", "init: float", "option init of Sink needs a type and a default"),
        ("init: float = 1.0", "init: list = []", "option init: list = [] of Sink cannot be read"),
        ("init: float = 1.0", "init: float = C", "option init: float = C of Sink cannot be read"),
        ("init: float = 1.0", "init: float = 'a'", "init is 'a', but must be a number"),
        ("*, init: float = 1.0,", "*,", "unknown option of Sink 'init'"),
    ],
)
def test_an_option_that_cannot_be_read_is_refused(
    mine: Path, old: str, new: str, message: str
) -> None:
    edited(mine, old, new)
    with pytest.raises(InputError) as caught:
        row("x", model=f"{mine}:Sink", options={"init": 1.0})
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_options_need_their_class(mine: Path) -> None:
    with pytest.raises(InputError, match="row 'x': method_options belong to a method: give the"):
        row("x", model=f"{mine}:Sink", method_options={"rate": 1.0})
    with pytest.raises(InputError, match=r"GeluTransformer has no option init: write it as"):
        row("x", model="transformer.variants.layers:GeluTransformer", options={"init": 1.0})


def test_a_command_sets_a_class_and_its_options(mine: Path) -> None:
    experiment = find_experiment("multi30k")
    chosen = (f"model={mine}:Sink", f"method={mine}:Decayed", "Sink.init=3", "Sink.bound=none")
    found = with_settings(experiment, (*chosen, "dropout=0.2"))
    assert dict(found.config.model.options) == {**DEFAULTS, "init": 3.0}
    assert dict(found.config.training.method_options) == {"rate": 0.5}
    assert found.name.endswith(
        "-dropout=0.2-model=Sink-method=Decayed-Sink.init=3.0-Sink.bound=None"
    )
    again = with_settings(found, ("Decayed.rate=0.1",)).config
    assert dict(again.training.method_options) == {"rate": 0.1}
    for setting, message in {
        "Sink.inti=3": "unknown option of Sink 'inti': did you mean 'init'",
        "Sink.init=much": "init is 'much', but takes a number",
        "Other.init=3": "has no model and no method of this name",
    }.items():
        with pytest.raises(InputError, match=message):
            with_settings(experiment, (*chosen, setting))
