"""``ablations compare`` on the translations of two rows."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    """``base`` has finished seeds 1, 2, 3, and ``narrow``, which lacks words, 1, 3, 5."""
    plan = claim_plan(tmp_path, small_plan(seeds=[1, 2, 3, 5]))
    for row, seeds in (("base", (1, 2, 3)), ("narrow", (1, 3, 5))):
        for seed in seeds:
            cell = Cell(row, seed)
            finish(tmp_path, cell)
            claim(cell.directory(tmp_path), plan.experiment(cell))
            lines = (x[: -seed if row == "narrow" else None] for x in REFERENCES)
            path = hypotheses_path(cell.directory(tmp_path), "valid")
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    monkeypatch.setattr(
        "experiments.evaluate.trained.text_of_split", lambda *_: (REFERENCES, REFERENCES)
    )
    monkeypatch.setattr("experiments.evaluate.significance._TRIALS", 1_000)
    monkeypatch.setattr("experiments.evaluate.significance._SAMPLES", 100)
    return tmp_path


def test_a_line_per_common_seed_and_one_over_all(table: Path) -> None:
    first, third, over, signature = compare_rows(table, "base", "narrow", None)
    for line, seed in ((first, 1), (third, 3)):
        assert line.startswith(f"seed {seed}: BLEU of base 100.00, of narrow ")
        assert line.endswith(": base is better than narrow")
    assert over.startswith("over 2 seeds: difference \u2212") and " 95 % in \u2212" in over
    assert signature.startswith("nrefs:1|bs:100|ar:1000|")
    line, alone, _ = compare_rows(table, "narrow", "base", "3")
    assert line.startswith("seed 3: BLEU of narrow ") and alone.startswith("one seed: p is of the")


@pytest.mark.parametrize(
    ("first", "second", "seeds", "message"),
    [
        ("base", "narow", None, "unknown row 'narow': did you mean 'narrow'?"),
        ("base", "base", None, "takes two rows and seeds that both have finished"),
        ("base", "narrow", "1-3", "both have finished; these are: 1, 3$"),
        ("base", "narrow", "one", "--seeds holds 'one'"),
    ],
)
def test_what_cannot_be_compared(
    table: Path, first: str, second: str, seeds: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        list(compare_rows(table, first, second, seeds))
