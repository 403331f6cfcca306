"""Word-pieces joined to words, heads that are ranked, and the command that draws both."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.attention.figure import colour_of, join_words, mark_pieces
from experiments.attention.heads import rank
from experiments.cli import PROGRAM
from transformer.evaluation.attention_weights import Attention, Kind, attend

SENTENCE = "one two three"


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
    assert found.queries == found.keys == ["<s>", "lad", "·der", "</s>"]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        # which key each of seven queries attends to, and the share that this head gets
        ("encoder", {
            "the word before": ([6, 0, 1, 2, 3, 4, 5], 1),
            "the word itself": ([0, 1, 2, 3, 4, 5, 0], 1),
            "the word after": ([1, 2, 3, 4, 5, 5, 5], 1),
            "one word 5 or more away": ([5, 0, 1, 2, 3, 0, 1], 1),
            "the end of the sentence": ([6] * 7, 1),
        }),
        ("decoder", {
            "the word before": ([0, 1, 2, 3, 4, 5, 6], 1),
            "one word 5 or more away": ([0, 0, 0, 0, 0, 1, 3], 1 / 2),  # the last is too near
            "the start of the sentence": ([0] * 7, 1),
        }),
    ],
)  # fmt: skip
def test_each_measure_finds_the_head_that_does_nothing_else(
    kind: Kind, keys: dict[str, tuple[list[int], float]]
) -> None:
    heads = torch.nn.functional.one_hot(torch.tensor([x for x, _ in keys.values()]), 7)
    layers = torch.stack([heads / 2, heads])
    found = rank(kind, Attention(queries=[""] * 7, keys=[""] * 7, weights=layers))
    assert {name: (x[0].layer, x[0].head) for name, x in found.items()} == {
        name: (2, number) for number, name in enumerate(keys, start=1)
    }
    assert [x[0].share for x in found.values()] == pytest.approx([x for _, x in keys.values()])


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_a_figure_has_the_heads_that_were_asked_for(
    ending: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / f"heads.{ending}"
    options = ["--kind", "cross", "--layer", "1", "--heads", "3,1", "--words"]
    words = ["attention", str(finished), SENTENCE, *options, "--translation", "eins zwei"]
    assert PROGRAM.run([*words, "--output", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    starts = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}
    assert path.read_bytes().startswith(starts[ending])
    if ending == "svg":
        drawn = path.read_text(encoding="utf-8")
        colours = set(re.findall(r'<line[^>]*stroke="(#\w+)"', drawn))
        assert colours >= {colour_of(1), colour_of(3)} and colour_of(2) not in drawn
        assert "layer 1, heads 1, 3" in drawn
        for word in ("three", "zwei", "&lt;/s&gt;"):
            assert f">{word}</text>" in drawn


def test_find_lists_heads_and_draws_the_best(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "found.svg"
    options = ["--find", "--words", "--output", str(path)]
    assert PROGRAM.run(["attention", str(finished), SENTENCE, *options]) == 0
    title, *lines, where = capsys.readouterr().out.splitlines()
    assert (title, where) == ("Encoder self-attention: heads that attend most to", str(path))
    drawn = path.read_text(encoding="utf-8")
    measures = ["the word before", "the word itself", "the word after", "the end of the sentence"]
    for line, name in zip(lines, measures, strict=True):  # three words have nothing far away
        best, *others = re.findall(r"layer 1 head [123]: \d+ %", line)
        assert line.startswith(name) and len(others) == 2
        assert f">{name}, {best}</text>" in drawn


def test_the_page_is_written_into_the_run(copy: Path):
    assert PROGRAM.run(["attention", str(copy), "one <b>"]) == 0
    page = (copy / "attention.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert re.search(r'href="#kind=cross&amp;layer=1&amp;heads=[123]">layer ', page)


def test_stacks_of_different_depths_are_drawn(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def deeper(*args: Any, **options: Any) -> dict[Kind, Attention]:
        found = attend(*args, **options)
        weights = found["cross"].weights.repeat(2, 1, 1, 1)
        return {**found, "cross": dataclasses.replace(found["cross"], weights=weights)}

    monkeypatch.setattr("experiments.attention.command.attend", deeper)
    path, words = tmp_path / "x.svg", ["attention", str(copy), SENTENCE]
    assert PROGRAM.run([*words, "--output", str(path)]) == 0
    assert "layer 1, heads 1, 2, 3" in path.read_text(encoding="utf-8")
    assert PROGRAM.run([*words, "--layer", "2"]) == 2
    assert "the model has layers 1 to 1" in capsys.readouterr().err
    assert PROGRAM.run([*words, "--layer", "2", "--kind", "cross"]) == 0
    assert 'name="layer" value="2" checked' in (copy / "attention.html").read_text(encoding="utf-8")
