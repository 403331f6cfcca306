"""``ablations compare`` on the translations of two rows."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ablations.cli import compare
from ablations.report.compare import compare_rows
from ablations.tables.plan import claim_plan
from ablations.tables.table import Cell
from experiments.records.outputs import hypotheses_path
from experiments.records.ownership import claim
from tests.ablations.samples import finish, small_plan
from tests.samples import number_pairs
from transformer.errors import InputError

REFERENCES = [target for _, target in number_pairs(31, seed=5)]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``base`` with seeds 1, 2, 3 and ``narrow`` with 1, 3, 5 finished; ``free`` never run."""
    plan = small_plan(seeds=[1, 2, 3, 5])
    claim_plan(tmp_path, plan)
    for row, share, seeds in (("base", 0.1, (1, 2, 3)), ("narrow", 0.4, (1, 3, 5))):
        for seed in seeds:
            cell = Cell(row, seed)
            finish(tmp_path, cell)
            claim(cell.directory(tmp_path), plan.experiment(cell))
            leave(tmp_path, cell, share)
    monkeypatch.setattr(
        "experiments.evaluate.trained.text_of_split", lambda *_: (REFERENCES, REFERENCES)
    )
    return tmp_path


def leave(root: Path, cell: Cell, share: float) -> None:
    """Write translations that lack a ``share`` of the words."""
    random = Random(str(cell))
    lines = (
        " ".join(word for word in line.split() if random.random() >= share) for line in REFERENCES
    )
    text = "".join(f"{line}\n" for line in lines)
    hypotheses_path(cell.directory(root), "valid").write_text(text, encoding="utf-8")


def number(line: str, before: str) -> float:
    """The first number after ``before``."""
    return float(line.split(before)[1].split()[0].strip(",:").replace("\u2212", "-"))


def test_a_line_per_common_seed_and_one_over_all(table: Path) -> None:
    title, first, third, over, signature = compare_rows(table, "base", "narrow", None)
    assert title.startswith("pair at scale tiny, validation set, BLEU: narrow less base")
    for line, seed in ((first, 1), (third, 3)):
        assert line.startswith(f"seed {seed}: base ")
        assert line.endswith("31 lines: base is better than narrow")
        difference = number(line, "narrow ") - number(line, "base ")
        assert number(line, "difference ") == pytest.approx(difference, abs=0.011)
        assert difference < -10
    mean = (number(first, "difference ") + number(third, "difference ")) / 2
    half = 12.706205 * abs(number(first, "difference ") - number(third, "difference ")) / 2
    assert over.startswith("over 2 seeds: difference \u2212")
    assert number(over, "difference ") == pytest.approx(mean, abs=0.011)
    assert number(over, "95 % in ") == pytest.approx(max(mean - half, -100), abs=0.15)
    assert signature.startswith("nrefs:1|bs:1000|ar:10000|")


def test_the_better_row_is_named_in_either_order(table: Path) -> None:
    for seed in (1, 3):
        leave(table, Cell("base", seed), 0.0)
        leave(table, Cell("narrow", seed), 1.0)
    *_, over, _ = compare_rows(table, "narrow", "base", "1,3")
    assert over.endswith(
        "difference +100.00, 95 % in +100.00 to +100.00: base is better than narrow"
    )


def test_one_seed_cannot_judge_the_noise_of_seeds(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(table, "base", "narrow", seeds="3")
    _, line, over, _ = capsys.readouterr().out.splitlines()
    assert line.startswith("seed 3: ")
    assert over.startswith("one seed: p reflects the choice of lines only")
    leave(table, Cell("narrow", 1), 0.0)
    over = list(compare_rows(table, "base", "narrow", None))[-2]
    assert "within noise; approximate seeds needed to tell them apart: " in over


@pytest.mark.parametrize(
    ("first", "second", "seeds", "message"),
    [
        ("base", "narow", None, "unknown row 'narow': did you mean 'narrow'\\?"),
        ("base", "base", None, "row 'base' is given twice: name two rows"),
        (
            "base",
            "free",
            None,
            "no seed is finished in both .*: base has 1, 2, 3 and free has none",
        ),
        ("base", "narrow", "1,2", "seed 2 is not finished in both .* and narrow has 1, 3, 5"),
        ("base", "narrow", "1,1", "--seeds holds 1 twice"),
        ("base", "narrow", "3", r"narrow/seed-3 has no valid\.hypotheses\.txt"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused(
    table: Path, first: str, second: str, seeds: str | None, message: str
) -> None:
    hypotheses_path(table / "narrow" / "seed-3", "valid").unlink()
    with pytest.raises(InputError, match=message):
        list(compare_rows(table, first, second, seeds))
