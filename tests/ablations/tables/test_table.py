"""Rows, tables and scales, built in and in a user's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from ablations.folder import TableFolder
from ablations.report.numbers import compute_numbers
from ablations.report.results import results_grid
from ablations.tables import table2, table4
from ablations.tables.changes import CHANGES, Value, columns
from ablations.tables.find import find_scale, load_table, select_rows
from ablations.tables.plan import Plan, make_plan
from ablations.tables.plan_file import claim_plan
from ablations.tables.scale import Scale, scale
from ablations.tables.scales import MEDIUM, PAPER, QUICK, SMALL
from ablations.tables.since import TABLE as SINCE
from ablations.tables.table import Cell, Row, Table, row
from ablations.tables.table3 import BASE, TABLE
from experiments.catalog.find import find_experiment
from experiments.records.result import save_result
from tests.ablations.samples import CORPUS, TINY, result
from tests.samples import new_run
from transformer.config import OPTIONS_OF, Config, config_fields, from_dict, override, to_dict
from transformer.errors import InputError
from transformer.parsing.treebanks import TreebankText
from transformer.variants.layers import GeluTransformer

OWN_TABLE = """
from dataclasses import replace

from ablations.tables import BASE, Table, row
from ablations.tables.scales import QUICK

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


def changed(**changes: Any) -> Row:
    """A row with changes of any type."""
    return row("a", **changes)


def scaled(**settings: Any) -> Scale:
    """A scale with settings of any type."""
    return scale("x", corpus=CORPUS, **settings)


def planned(*measures: str) -> Plan:
    return make_plan(replace(table(), measures=measures), TINY, (), (1,))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: changed(num_head=4), "unknown setting 'num_head': did you mean 'num_heads'"),
        (lambda: scaled(warm_up_steps=4), "unknown setting .* did you mean 'warmup_steps'"),
        (lambda: scaled(longer={"also_averag": 4}), "did you mean 'also_average'"),
        (lambda: changed(dropout="0.1"), r"row 'a': dropout is '0\.1', but must be a number"),
        (lambda: changed(num_layers=2.0), r"num_layers is 2\.0, but must be a whole number"),
        (lambda: changed(d_ff=True), "d_ff is True, but must be a whole number"),
        (lambda: changed(positions=3), "positions is 3.*one of sinusoidal, learned"),
        (lambda: changed(schedule=None), "schedule is None, but must be one of inv"),
        (lambda: changed(clip_norm="1"), "clip_norm is '1'.* a number or none"),
        (lambda: changed(drop_duplicates=1), "duplicates is 1, but must be true or f"),
        (lambda: changed(seed=3), "row 'a': a row cannot change seed: docs/own-tables.md"),
        (lambda: scaled(d_ff=8), "scale cannot change d_ff"),
        (lambda: replace(TINY, corpus=cast(Any, "files:a")), "'tiny' needs a corpus=Corpus"),
        (lambda: scaled(schedule="flat"), "schedule is 'flat'"),
        (lambda: scaled(divide_dropout=1.5), "divide_dropout is 1.5, but must be a whole number"),
        (lambda: scaled(divide_widths=0), "divide_widths is 0, but must be a whole number above 0"),
        (lambda: replace(TINY, settings=cast(Any, {"warm": 1})), "unknown setting 'warm'"),
        (lambda: replace(table(), rows=()), "table 't' has no row to run"),
        (lambda: table(row("a", published=True)), "table 't' has no row to run"),
        (lambda: table(name="a/b"), "table name 'a/b' may have only"),
        (lambda: table(row("a"), row("A", d_ff=8)), "two rows named 'a'"),
        (lambda: table().configure(changed(num_heads=0), TINY), "row 'a' of 't' at .*num_heads is"),
        (lambda: table().configure(changed(max_steps=0), TINY), "max_steps is 0, but must be at"),
        (lambda: table().configure(changed(d_k=12), TINY), "d_k is 12.*by 8.* so 8, 16, 24, … fit"),
        (lambda: table().configure(changed(d_model=8), TINY), "is 8, .*so 16, 32, 48, … fit"),
        (
            lambda: table(base=override(BASE, num_layers=1)).configure(None, SMALL),
            "the base of 't' at.*num_layers is 1, which scale 'small' cannot divide by 2.* 2, 4,",
        ),
        (
            lambda: table(base=override(BASE, corpus=CORPUS)).configure(None, QUICK),
            "the base of 't' at.* corpus is toy, but scale 'quick' would replace it by cldr_en_de",
        ),
        *((partial(row, name), "row name .* may have only") for name in BAD_NAMES),
        (
            lambda: make_plan(table(row("a", cast(Any, "5.0"))), TINY, (), (1,)),
            "table 't' .*reported.perplexity.* instead of value \"5.0\"",
        ),
        (partial(planned, "blue"), "unknown measure 'blue': did you mean 'bleu'"),
        (partial(planned, "perplexity", "test_f1"), "measure 'test_f1' is not one of translation"),
        (partial(planned, "perplexity", "f1"), "measure 'f1' is not one of translation"),
        (
            partial(planned, "bleu", "test_bleu"),
            "'t' measures a test set, but its corpus has none",
        ),
        (partial(planned, "test_bleu"), "table 't' needs a validation score, such as perplexity"),
    ],
)
def test_an_invalid_declaration_is_refused(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        declare()


def test_a_row_may_change_each_field_that_rows_need_not_share() -> None:
    shared = {"corpus", "seed", "compile", "checkpoint_every_minutes", *OPTIONS_OF.values()}
    fields = {name: kind for name, (_, kind) in config_fields().items() if name not in shared}
    assert fields | {"target_language": str} == CHANGES


OTHER: dict[str, Value] = {
    "vocab_size": 5_000, "positions": "learned", "max_length_ratio": 2.5, "drop_duplicates": True,
    "warmup_steps": 123, "clip_norm": 2.0, "threads": 2, "also_average": 4, "beam_size": 1,
}  # fmt: skip


@pytest.mark.parametrize("where", ["row", "base", "scale"])
@pytest.mark.parametrize("name", OTHER)
def test_what_a_row_or_a_base_sets_is_kept_at_a_scale(name: str, where: str) -> None:
    changes = {name: OTHER[name]}
    base = override(BASE, **changes) if where == "base" else BASE
    own = table(changed(**changes) if where == "row" else row("a"), base=base)
    chosen = scaled(**changes) if where == "scale" else TINY
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


def test_a_base_may_name_the_papers_own_value() -> None:
    named = override(BASE, warmup_steps=4_000)
    assert named == BASE and to_dict(named) == to_dict(BASE)
    assert SMALL.apply(named).training.warmup_steps == 4_000
    assert SMALL.apply(BASE).training.warmup_steps == 1_600
    _, kept = SMALL.describe(named)
    assert kept == "kept from the table's base: warmup_steps=4000 (the scale's: 1600)"


def test_a_scale_says_what_it_sets_and_what_it_leaves() -> None:
    base = override(BASE, max_steps=50_000, warmup_steps=2_000)
    sets, kept = SMALL.describe(base)
    assert "widths / 8, N / 2, dropout / 2; 6,000 steps for the base's 50,000; it sets voc" in sets
    assert "warmup_steps" not in sets and "clip_norm=1.0" in sets
    assert kept == "kept from the table's base: warmup_steps=2000 (the scale's: 1600)"
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
    # As the paper's two models of Table 2, see tests/experiments/catalog/test_catalog.py.
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
    (tmp_path / "near_table.py").write_text("\n1 / 0\n")
    for text, message in (
        ("TABLE = 3", "declares no TABLE"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit", "my_table.py, line 1: SystemExit"),
        ("import near_table", r"/near_table\.py, line 2: ZeroDivisionError"),
        ("from ablations.tables import row\nrow('x', dmodel=3)", "did you mean 'd_model'"),
        (OWN_TABLE + "TABLE = replace(TABLE, scales=QUICK)", "scales must be a tuple: scales"),
        (OWN_TABLE + "TABLE = replace(TABLE, base='a')", "its base must be a Config, like BASE"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            load_table(str(path))


OURS = {"base-en-de": 27.3, "big-en-de": 28.4, "base-en-fr": 38.1, "big-en-fr": 41.8}
OTHERS = [
    *((23.75, None), (24.6, 2.3e19), (25.16, 9.6e18), (26.03, 2.0e19)),
    *((39.2, 1.0e20), (39.92, 1.4e20), (40.46, 1.5e20), (40.56, 1.2e20)),
]


def test_table_2_has_the_papers_figures_and_others_are_never_run() -> None:
    table = table2.TABLE
    assert {row.name: row.reported.test_bleu for row in table.run_rows} == OURS
    assert {row.reported.flops for row in table.run_rows} == {3.3e18, 2.3e19}
    others = [(x.reported.test_bleu, x.reported.flops) for x in table.rows if x.published]
    assert others == OTHERS
    plan = make_plan(table, find_scale(table, "small"), table.rows, [1, 2])
    assert {cell.row for cell in plan.cells} == set(OURS) and len(plan.cells) == 8
    corpora = {name: config.data.corpus.name for name, config in plan.configs.items()}
    assert corpora == {name: f"multi30k_en_{name[-2:]}" for name in OURS}
    with pytest.raises(InputError, match="at scale 'quick': its corpora are in de, none in 'fr'"):
        make_plan(table, QUICK, table.rows, [1])
    with pytest.raises(InputError, match="unknown row 'ByteNet'"):
        select_rows(table, "ByteNet")


@pytest.mark.parametrize("name", OURS)
def test_at_the_papers_scale_a_row_is_the_experiment_of_that_name(name: str) -> None:
    plan = make_plan(table2.TABLE, find_scale(table2.TABLE, "paper"), table2.TABLE.run_rows, [1])
    size, language = name.removesuffix(name[-6:]), name[-2:]
    named = find_experiment(f"wmt14_en_{language}_{size}").config
    ours = plan.experiment(Cell(name, 1))
    assert ours.splits == ("valid", "test")
    assert (ours.config.model, ours.config.data) == (named.model, named.data)
    assert columns(ours.config) == columns(named)


def test_flops_by_the_time_on_a_device_stand_next_to_those_of_the_model(tmp_path: Path) -> None:
    table, cell = table2.TABLE, Cell("base-en-de", 1)
    plan = claim_plan(tmp_path, make_plan(table, find_scale(table, "small"), table.rows, [1]))
    experiment = plan.experiment(cell)
    new_run(cell.directory(tmp_path), experiment)
    made = replace(result(cell), experiment=experiment.name, flops_nominal=4e13)
    save_result(cell.directory(tmp_path), made)
    rows, *others = results_grid(compute_numbers(TableFolder(tmp_path)), tmp_path).columns
    shown = {x.title: x.cells[rows.cells.index(cell.row)] for x in others}
    flops = [shown[x] for x in ("FLOPs", "FLOPs nominal", "FLOPs paper")]
    assert flops == ["1.5e13", "4e13", "3.3e18"]


def test_table_4_has_the_papers_parser_and_others_are_never_run() -> None:
    table, config = table4.TABLE, table4.TABLE.base
    model, decoding = config.model, config.decoding
    assert (model.num_layers, model.d_model, model.vocab_size) == (4, 1024, 16_000)
    assert (decoding.beam_size, decoding.length_penalty) == (21, 0.3)
    assert decoding.max_extra_length == 300
    assert [(row.name, row.reported.test_f1) for row in table.run_rows] == [("transformer", 91.3)]
    figures = [row.reported.test_f1 for row in table.rows if row.published]
    assert figures == [88.3, 90.4, 90.4, 91.7, 91.3, 91.3, 92.1, 92.1, 92.7, 93.0, 93.3]
    assert find_scale(table, "quick").corpus.name == "craft_12"
    with pytest.raises(InputError, match="unknown scale 'medium': known: paper, quick, small"):
        find_scale(table, "medium")
    assert find_scale(TABLE, "medium") == MEDIUM


def test_the_papers_scale_of_table_4_needs_the_users_treebank(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = TreebankText.of(find_scale(table4.TABLE, "paper").corpus.valid.source.location)
    monkeypatch.delenv("PENN_TREEBANK", raising=False)
    with pytest.raises(InputError, match="set PENN_TREEBANK to the folder"):
        text.files()
    section = tmp_path / "parsed" / "mrg" / "wsj" / "22"
    section.mkdir(parents=True)
    (section / "wsj_2200.mrg").write_text("( (S (NN x)) )\n")
    monkeypatch.setenv("PENN_TREEBANK", str(tmp_path))
    assert [Path(file.location).name for file in text.files()] == ["wsj_2200.mrg"]


def test_each_row_of_since_is_one_change_to_the_papers_base() -> None:
    assert SINCE.base == BASE and not SINCE.rows[0].changes
    for each in SINCE.rows[1:]:
        assert each.reference in ("better", "same", "worse")
        more = {name for name in each.changes if name not in OPTIONS_OF and "." not in name}
        assert not more or each.name in ("adamw-cosine", "modern")
        for chosen in (QUICK, SMALL):
            found = columns(SINCE.configure(each, chosen))
            named = {of for of in OPTIONS_OF if found[of] is not None}
            assert named and named == set(each.changes) & set(OPTIONS_OF)


def test_a_row_takes_a_class_or_its_path() -> None:
    path = "transformer.variants.layers:GeluTransformer"
    gelu = row("gelu", model=GeluTransformer)
    assert gelu.changes == row("gelu", model=path).changes
    with pytest.raises(InputError, match="row 'a': there is no Missing in"):
        row("a", model="transformer.variants.layers:Missing")
