"""The lines of a ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ablations.proposals.decide import Spread, Verdict
from ablations.proposals.ledger import LEDGER_FILE, Adopted, Ledger, Tried
from transformer.errors import InputError

LINE = Tried(
    number=1,
    name="Idea",
    classes=("Idea@01234567",),
    settings={"Idea.slope": 0.5, "clip_norm": None},
    seeds=(1, 2),
    base="base",
    base_seeds=(1, 2, 3),
    perplexities={"1": 1.25, "2": None},
    differences={"1": -0.125},
    scores=(0.25, 0.75),
    difference=-0.125,
    interval=(-0.25, 0.0),
    p=0.03125,
    level=0.025,
    look=1,
    verdict=Verdict.WORSE,
    seconds=61.5,
    when="2026-11-28T10:00:00+00:00",
)
NONE = replace(
    LINE, number=2, name="Other", verdict=Verdict.NONE, look=None, scores=(), interval=None, p=None
)
ADOPTED = Adopted(
    adopted=1, name="Idea", seeds=(11, 12), difference=-0.125, seconds=7.0, when=LINE.when
)


def test_lines_come_back_as_they_were(tmp_path: Path) -> None:
    for line in (LINE, NONE, ADOPTED):
        Ledger(tmp_path).append(line)
    assert Ledger(tmp_path).lines == (LINE, NONE, ADOPTED)
    assert Ledger(tmp_path / "none").lines == ()


@pytest.mark.parametrize("cut", [1, 2, 57, -1])
def test_a_last_line_that_a_kill_cut_is_written_again(tmp_path: Path, cut: int) -> None:
    Ledger(tmp_path).append(LINE)
    path = tmp_path / LEDGER_FILE
    whole = path.read_bytes()
    Ledger(tmp_path).append(NONE)
    end = cut if cut < 0 else len(whole) + cut
    path.write_bytes(path.read_bytes()[:end])
    assert Ledger(tmp_path).lines == (LINE,)
    Ledger(tmp_path).append(NONE)
    assert Ledger(tmp_path).lines == (LINE, NONE)
    assert path.read_bytes().startswith(whole)


def test_a_damaged_line_before_the_last_is_named(tmp_path: Path) -> None:
    for line in (LINE, NONE):
        Ledger(tmp_path).append(line)
    path = tmp_path / LEDGER_FILE
    path.write_bytes(path.read_bytes().replace(b'{"number": 1', b'{"number: 1'))
    with pytest.raises(InputError, match=r"ledger\.jsonl, line 1 .*: restore the file"):
        Ledger(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'{"number: 1', b'{"number": "one"'))
    with pytest.raises(InputError, match="line 1"):
        Ledger(tmp_path)


def test_each_proposal_counts_once_and_only_if_it_was_tested(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.look("Idea") == 1
    for line in (NONE, LINE):
        ledger.append(line)
    assert ledger.look("Idea") == 1 and ledger.look("Other") == 2
    ledger.append(replace(NONE, look=2))
    ledger.append(replace(NONE, look=2, verdict=Verdict.SAME))
    assert ledger.look("Other") == 2 and ledger.next_look == 3
    assert ledger.spread() == Spread(0.125, 1)
    assert ledger.spread(without="Idea") == Spread()


def test_the_base_is_the_last_that_was_adopted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.base((1, 2, 3)) == ("base", (1, 2, 3))
    ledger.append(ADOPTED)
    ledger.append(replace(ADOPTED, adopted=2, name="Other", seeds=(21, 23)))
    assert Ledger(tmp_path).base((1, 2, 3)) == ("Other", (21, 23))
