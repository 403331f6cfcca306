"""Tables and searches on text of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablations.cli import PROGRAM
from ablations.files import PLAN_FILE
from ablations.search.search import load_search
from ablations.tables import table4
from ablations.tables.find import scale_on
from ablations.tables.plan_file import load_plan
from ablations.tables.scale import scale
from ablations.tables.scales import QUICK, SMALL
from ablations.tables.table3 import BASE, TABLE
from experiments.catalog.own_text import Amount, corpus_of_folder
from tests.ablations.samples import SMALL_TABLE
from tests.samples import write_corpus
from transformer.errors import InputError


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "my numbers")
    return "files:my numbers:de-en"


def test_a_scale_keeps_its_sizes_on_ones_own_text(text: str) -> None:
    found = scale_on(TABLE, "small", text)
    assert found.name == "small-my-numbers-de-en"
    ours, theirs = found.apply(BASE), SMALL.apply(BASE)
    assert ours.data.corpus == corpus_of_folder(text)
    assert ours.model.vocab_size == 42 < theirs.model.vocab_size
    assert (ours.model.d_model, ours.training) == (theirs.model.d_model, theirs.training)
    assert next(iter(found.describe(BASE))).endswith("of training text, with 42 word-pieces")


@pytest.mark.parametrize(
    ("megabytes", "name"), [(0, "quick"), (3, "small"), (30, "medium"), (999, "paper")]
)
def test_without_a_name_the_scale_is_that_of_the_nearest_corpus(
    megabytes: int, name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    amount = Amount(7, megabytes * 10**6, 31)
    monkeypatch.setattr("ablations.tables.find.amount_of", lambda _: amount)
    found = scale_on(TABLE, None, text)
    assert found.name == f"{name}-my-numbers-de-en"
    assert f"which suits scale {name} (--scale chooses another)" in found.note
    if name == "paper":
        assert found.apply(BASE).model.vocab_size == BASE.model.vocab_size == 37_000


def test_word_pieces_have_room_for_the_characters(text: str) -> None:
    mine = scale("mine", corpus=QUICK.corpus, vocab_size=53)
    pieces = mine.on(corpus_of_folder(text), Amount(7, 10**6, 31), "").apply(BASE).model.vocab_size
    assert pieces == 62  # room for twice its characters


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan table3 numbers", "numbers names no text: write it as files:FOLDER"),
        (
            "plan table4 files:numbers",
            f"{table4.TABLE.name} is about parsing, but files:numbers is",
        ),
        ("run table3 files:none", "none is not a folder"),
        ("run table1 files:numbers", "table1 takes only --directory, --device and --quick"),
        ("search base_lr files:none --trials 2", "none is not a folder"),
        ("search base_lr --trials 2", "base_lr needs --scale"),
    ],
)
def test_what_is_no_text_of_ones_own_is_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert PROGRAM.run(words.split()) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"python -m ablations: error: {said}") and line.count("\n") == 1


def test_run_and_search_claim_directories_named_after_the_text(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def carry_out(*_: Any) -> int:
        return 3

    monkeypatch.setattr("ablations.run._carry_out", carry_out)
    corpus = corpus_of_folder(text)
    chosen = "211 pairs, 8,449 bytes of training text, which suits scale quick"
    assert PROGRAM.run(["run", "table3", text, "--rows", "base", "--log", "none"]) == 3
    assert chosen in capsys.readouterr().out
    plan = load_plan(Path("runs/table3-quick-my-numbers-de-en"))
    assert plan.base.data.corpus == corpus and plan.base.model.vocab_size == 42
    assert PROGRAM.run(["search", "base_lr", text, "--trials", "2"]) == 3
    assert chosen in capsys.readouterr().out
    search = load_search(Path("runs/base_lr-quick-my-numbers-de-en"))
    assert search.base.data.corpus == corpus and search.scale == "quick-my-numbers-de-en"
    assert not (Path("runs/table3-quick") / PLAN_FILE).exists()


def test_the_own_scale_of_a_table_is_found_on_a_text(text: str) -> None:
    assert scale_on(SMALL_TABLE, "tiny", text).name == "tiny-my-numbers-de-en"
    with pytest.raises(InputError, match="unknown scale 'tiny'"):
        scale_on(TABLE, "tiny", text)
