"""Spaces, how scales map them, and how one of a user's is found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ablations.search.space import (
    BASE_LR,
    REGULARISATION,
    SHAPE,
    SPACES,
    Hyperparameter,
    Space,
    choice,
    load_space,
    uniform,
    whole,
)
from ablations.tables.changes import Value
from ablations.tables.scales import QUICK, SCALES, SMALL
from ablations.tables.table import row
from tests.ablations.samples import TINY
from tests.ablations.search.samples import search_of
from transformer.errors import InputError
from transformer.variants.layers import GeluTransformer

_FITTING = [
    (space, scale)
    for space in SPACES.values()
    for scale in (*SCALES, TINY, *space.scales)
    if scale.corpus.task == space.base.data.corpus.task
]


@pytest.mark.parametrize(
    ("space", "scale"), _FITTING, ids=[f"{x.name}-{y.name}" for x, y in _FITTING]
)
def test_every_space_fits_every_scale_and_holds_its_base(space: Any, scale: Any) -> None:
    search = search_of(space, scale)
    first = search.first()
    assert set(first) == {parameter.name for parameter in search.parameters}
    assert search.is_feasible(first)
    assert search.values(search.base) == first


def test_a_space_is_mapped_as_a_row_is() -> None:
    layers, _, d_ff, heads, d_k = SHAPE.at(QUICK)
    assert layers.choices == (1, 2, 3, 4)
    assert d_ff.choices == (64, 128, 256, 384, 512)
    assert heads.choices == (1, 2, 4, 8, 16)
    assert (d_k.fields, d_k.choices) == (("d_k", "d_v"), (2, 4, 8, 16))
    factor, warmup = BASE_LR.at(SMALL)
    assert (factor.low, factor.high) == (0.1, 4.0)
    assert (warmup.low, warmup.high) == (60, 4_800)
    assert REGULARISATION.at(SMALL)[0].high == 0.2
    gelu = row("a", model=GeluTransformer).changes["model"]
    assert one(choice("model", None, GeluTransformer)).at(QUICK)[0].choices == (None, gelu)


def test_a_base_that_is_no_choice_is_known_in_the_units_of_the_space() -> None:
    rates = choice("dropout", 0.2, 0.0)
    assert one(rates).at(QUICK)[0].declare(0.05, rates) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("parameter", "inside", "outside"),
    [
        (uniform("dropout", 0.1, 0.3), (0.1, 0.2, 0.3), (0.0999, 0.3001, None, "0.2")),
        (whole("num_heads", 2, 5), (2, 3, 5), (1, 6, None)),
        (choice("d_ff", 512, 1024), (512, 1024), (768, None)),
    ],
    ids=lambda x: x.name if isinstance(x, Hyperparameter) else "",
)
def test_a_range_holds_both_of_its_ends(
    parameter: Hyperparameter, inside: tuple[Value, ...], outside: tuple[Value, ...]
) -> None:
    assert all(map(parameter.holds, inside)) and not any(map(parameter.holds, outside))


@pytest.mark.parametrize("ends", [(0.1, 0.3), (0.0, 0.1)])
def test_a_base_at_an_end_of_a_range_is_the_first_trial(ends: tuple[float, float]) -> None:
    assert search_of(one(uniform("dropout", *ends))).first() == {"dropout": 0.1}


def test_the_built_in_spaces_spelled_out() -> None:
    """A changed range would change each search that is begun with it, and no other test."""
    factor = ("float", (0.1, 4.0), True, ())
    expected = {
        "base_lr": (
            None,
            {
                "learning_rate_factor": factor,
                "warmup_steps": ("int", (500, 40_000), True, ()),
            },
        ),
        "regularisation": (
            None,
            {
                "dropout": ("float", (0.0, 0.4), False, ()),
                "label_smoothing": ("float", (0.0, 0.3), False, ()),
            },
        ),
        "shape": (
            1.0,
            {
                "num_layers": ("choice", (2, 4, 6, 8), False, ()),
                "d_model": ("choice", (256, 384, 512, 640, 768), False, ()),
                "d_ff": ("choice", (512, 1024, 2048, 3072, 4096), False, ()),
                "num_heads": ("choice", (1, 2, 4, 8, 16), False, ()),
                "d_k": ("choice", (16, 32, 64, 128), False, ("d_v",)),
            },
        ),
        "parsing": (
            None,
            {
                "dropout": ("float", (0.0, 0.5), False, ()),
                "learning_rate_factor": factor,
            },
        ),
    }
    assert {
        name: (space.budget, {x.name: (x.kind, x.bounds, x.log, x.sets) for x in space.parameters})
        for name, space in SPACES.items()
    } == expected
    assert not whole("d_ff", 512, 4_096).log


def one(parameter: Hyperparameter, name: str = "mine") -> Space:
    return Space(name=name, title="Mine", parameters=(parameter,))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: uniform("droput", 0, 0.1), "unknown setting 'droput': did you mean 'dropout'"),
        (lambda: whole("vocab_size", 1, 2), "a search cannot change vocab_size: docs/search.md"),
        (lambda: choice("beam_size", 1, 4), "a search cannot change beam_size: docs/search.md"),
        (lambda: uniform("dropout", 0.3, 0.1), "dropout needs a range, not 0.3 to 0.1"),
        (lambda: uniform("dropout", 0, 0.1, log=True), "needs a range above 0, as it is log"),
        (lambda: choice("d_ff", 512), "d_ff needs two or more choices"),
        (lambda: choice("d_ff", 512, 512), "all different"),
        (lambda: choice("d_ff", 512, 1024, sets=("width",)), "unknown setting 'width'"),
        (lambda: choice("d_ff", 512, "wide"), "d_ff is 'wide', but must be a whole number"),
        (lambda: uniform("warmup_steps", 1, 9), "warmup_steps is 1.0, but must be a whole number"),
        (lambda: one(uniform("dropout", 0, 0.1), "a/b"), "space name 'a/b' may have only"),
        (lambda: Space(name="x", title="", parameters=()), "space 'x' needs parameters"),
        (
            lambda: one(choice("d_k", 32, 64, sets=("d_k",))),
            "'mine' needs parameters, each .* once",
        ),
        (lambda: replace(SHAPE, budget=0.0), "'shape': budget is 0.0, but must be above 0"),
        (lambda: replace(SHAPE, budget=math.inf), "budget is inf, but must be above 0"),
        (
            lambda: search_of(replace(SHAPE, title=cast(Any, 3))),
            "space 'shape' does not fit .*title",
        ),
        (lambda: one(uniform("label_smoothing", 0, 1.5)).at(TINY), "'mine' at scale 'tiny': label"),
        (lambda: one(choice("d_k", 64, 68)).at(TINY), "is 68, which scale 'tiny' cannot divide"),
        (lambda: one(whole("warmup_steps", 3, 5)).at(TINY), "needs a range, not 1 to 1"),
        (
            lambda: one(choice("num_heads", 2, 4, sets=("num_layers",))).at(TINY),
            "scale 'tiny': the scale maps num_heads and num_layers differently",
        ),
        (lambda: load_space("base_rl"), "unknown space 'base_rl': did you mean 'base_lr'"),
        (lambda: load_space("gone.py"), "there is no space file"),
    ],
)
def test_what_cannot_be_searched_is_named(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        declare()
    assert "\n" not in str(error.value)


OWN = """
from ablations.search import Space, choice, scale, uniform
from tests.ablations.samples import CORPUS

SPACE = Space(
    name="smoothing",
    title="Label smoothing and width",
    parameters=(uniform("label_smoothing", 0.0, 0.3), choice("d_ff", 1024, 2048, 4096)),
    scales=(scale("mine", corpus=CORPUS),),
)
"""


def test_a_users_file_declares_a_space_or_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "smoothing.py"
    path.write_text(OWN)
    space = load_space(str(path))
    assert [parameter.name for parameter in space.parameters] == ["label_smoothing", "d_ff"]
    # Its paths are taken from its folder, as those of an experiment's file are.
    assert space.scales[0].corpus.valid.source.location == str(tmp_path / "text.en")
    path.write_text("SPACE = 3")
    with pytest.raises(InputError, match=r"declares no SPACE = Space\(…\)"):
        load_space(str(path))
