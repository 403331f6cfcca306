"""Word-pieces joined to words by hand, and heads that do one thing each."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from experiments.attention.heads import MEASURES, join_words, mark_pieces, rank
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
