"""Word-pieces joined to words, heads that do one thing each, and the command."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from experiments.attention.figure import colour_of
from experiments.attention.heads import MEASURES, join_words, mark_pieces, rank
from experiments.cli import PROGRAM
from tests.experiments.samples import copy_of
from transformer.evaluation.attention_weights import Attention, Kind

SIZE = 13


def test_words_are_the_sum_over_keys_and_the_mean_over_queries() -> None:
    pieces = ["▁a", "▁lad", "der", ".", "</s>"]
    weights = torch.tensor(
        [
            [0.5, 0.2, 0.1, 0.1, 0.1],
            [0.0, 0.4, 0.2, 0.4, 0.0],
            [0.4, 0.0, 0.2, 0.1, 0.3],
            [1.0, 0.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 1.0, 0.0, 0.0],
        ]
    )
    found = join_words(Attention(queries=pieces, keys=pieces, weights=weights[None, None]))
    assert found.queries == found.keys == ["a", "ladder", ".", "</s>"]
    expected = torch.tensor(
        [
            [0.5, 0.3, 0.1, 0.1],
            [0.2, 0.4, 0.25, 0.15],
            [1.0, 0.0, 0.0, 0.0],
            [0.0, 1.0, 0.0, 0.0],
        ]
    )
    torch.testing.assert_close(found.weights[0, 0], expected)


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ("<s> ▁blue - wh ite ▁don ' t", "<s> blue - white don ' t"),
        ("▁ é t é ... </s>", "été ... </s>"),
        ("<s> zt </s>", "<s> zt </s>"),
        ("<unk> s </s>", "<unk>s </s>"),
    ],
)
def test_words_end_at_spaces_and_at_punctuation(pieces: str, words: str) -> None:
    keys = pieces.split()
    weights = torch.ones(1, 1, 1, len(keys))
    found = join_words(Attention(queries=["▁x"], keys=keys, weights=weights))
    assert found.keys == words.split()
    assert found.weights.sum() == len(keys)


def test_word_pieces_that_continue_a_word_are_marked() -> None:
    pieces = ["<s>", "▁lad", "der", "</s>"]
    found = mark_pieces(Attention(queries=pieces, keys=pieces, weights=torch.eye(4)[None, None]))
    assert found.keys == ["<s>", "lad", "·der", "</s>"]


def head(kind: Kind, name: str) -> Tensor:
    """A head that does nothing else, ``(queries, keys)``, as far as there is such a key."""
    rows = torch.arange(SIZE)
    away = {"previous word": -1, "next word": 1}.get(name, 0)
    keys = {
        "end": torch.full((SIZE,), SIZE - 1),
        "start": torch.zeros(SIZE, dtype=torch.long),
        "one word": (5 * rows + 3) % SIZE,
        "far away": torch.where(rows < SIZE // 2, SIZE - 2, 0),
    }.get(name, (rows + away).clamp(0, SIZE - 1))
    if kind == "decoder":  # key j there is the word before query j
        others = {"previous word": rows, "far away": rows.clamp(max=1)}
        keys = others.get(name, keys)
    return torch.nn.functional.one_hot(keys, SIZE).float()


@pytest.mark.parametrize(
    ("kind", "number"),
    [(kind, n) for kind, measures in MEASURES.items() for n in range(len(measures))],
)
def test_each_measure_finds_the_head_that_does_nothing_else(kind: Kind, number: int) -> None:
    measures = MEASURES[kind]
    heads = torch.stack([head(kind, measure.name) for measure in measures])
    words = [f"w{i}" for i in range(SIZE)]
    even = torch.full_like(heads, 1 / SIZE)
    found = Attention(
        queries=words, keys=words, weights=torch.stack([0.5 * heads + 0.5 * even, heads])
    )
    measure = measures[number]
    best = rank(found, measure)[0]
    assert (best.layer, best.head) == (2, number + 1)
    # what the decoder writes first has nothing far away
    first = 5 / SIZE if (kind, measure.name) == ("decoder", "far away") else 0.0
    assert best.score == pytest.approx(1.0 - first)
    assert str(best) == f"layer 2 head {number + 1}: {100 * (1.0 - first):.0f} %"


@pytest.mark.parametrize(
    ("kind", "query", "key", "is_far"),
    [
        ("encoder", 0, 4, False),
        ("encoder", 0, 5, True),
        ("encoder", 6, 1, True),
        ("encoder", 0, SIZE - 1, False),  # the end
        ("decoder", 5, 2, False),  # the sixth word, when it is written, and the second
        ("decoder", 5, 1, True),  # and the first
        ("decoder", 9, 0, False),  # the start
    ],
)
def test_five_words_away_is_far(kind: Kind, query: int, key: int, is_far: bool) -> None:
    (measure,) = (measure for measure in MEASURES[kind] if measure.name == "far away")
    weights = torch.zeros(SIZE, SIZE)
    weights[query, key] = 1.0
    assert measure.of(weights) == pytest.approx(is_far / SIZE)


Run = Callable[..., tuple[int, list[str], list[str]]]
SENTENCE = "one two three"


@pytest.fixture
def attention(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process: its exit code, and lines on standard output and error."""

    def run(*arguments: str | Path) -> tuple[int, list[str], list[str]]:
        monkeypatch.setattr(sys, "argv", ["experiments", "attention", *map(str, arguments)])
        code = PROGRAM.run()
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


def test_a_figure_has_the_heads_that_were_asked_for(attention: Run, finished: Path, tmp_path: Path):
    path = tmp_path / "heads.svg"
    options = ("--kind", "cross", "--layer", "1", "--heads", "3,1", "--words")
    translation = ("--translation", "eins zwei")
    assert attention(finished, SENTENCE, *options, *translation, "--output", path) == (
        0,
        [str(path)],
        [],
    )
    drawn = path.read_text(encoding="utf-8")
    assert set(re.findall(r'<line[^>]*stroke="(#\w+)"', drawn)) >= {colour_of(1), colour_of(3)}
    assert colour_of(2) not in drawn
    assert "layer 1, heads 1, 3" in drawn
    for word in ("three", "zwei", "&lt;/s&gt;"):
        assert f">{word}</text>" in drawn


@pytest.mark.parametrize(("ending", "start"), [(".pdf", b"%PDF"), (".png", b"\x89PNG")])
def test_find_lists_heads_and_draws_the_best(
    ending: str, start: bytes, attention: Run, finished: Path, tmp_path: Path
):
    path = tmp_path / f"found{ending}"
    code, lines, problems = attention(finished, SENTENCE, "--find", "--output", path)
    assert (code, problems) == (0, [])
    assert path.read_bytes().startswith(start)
    title, *measures, where = lines
    assert title.startswith("Encoder self-attention") and where == str(path)
    names = [line[:14].strip() for line in measures]
    assert names == ["previous word", "same word", "next word", "far away", "end"]
    assert all(len(re.findall(r"layer [12] head [123]: ", line)) == 3 for line in measures)


def test_the_page_is_written_into_the_run(attention: Run, finished: Path, tmp_path: Path):
    run = copy_of(finished, tmp_path / "run")
    assert attention(run, "one <b>") == (0, [str(run / "attention.html")], [])
    page = (run / "attention.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert not re.search(r'(src|href)="(?!data:)', page)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--layer 3", "there is no layer 3: the model has layers 1 to 2"),
        ("--layer 0", "there is no layer 0"),
        ("--heads 1,4", "there is no head 4: each layer has heads 1 to 3"),
        ("--heads 1,x", "--heads is '1,x', but takes numbers such as 1,5"),
        ("--find --layer 1", "--find chooses layers and heads itself"),
        ("--output a.jpg", "a.jpg cannot be written: its name must end in .html, .svg, .pdf, .png"),
        ("--output nowhere/a.svg", "nowhere is not a folder: --output cannot be written"),
        ("--average 3", "holds 2 of the 3 checkpoints to average"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(
    options: str,
    said: str,
    attention: Run,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    code, lines, (problem,) = attention(finished, SENTENCE, *options.split())
    assert (code, lines) == (2, [])
    assert said in problem
    assert not list(tmp_path.iterdir()) and not list(finished.glob("attention*"))
