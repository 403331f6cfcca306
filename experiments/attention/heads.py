"""Join word-pieces to words, and rank heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer.data.vocabulary import SPACE_SYMBOL
from transformer.evaluation.attention_weights import Attention, Kind

# As many words away count as far.
_FAR = 5
# Of the control word-pieces, which stand alone.
_ENDS = ("<s>", "</s>")


@dataclass(frozen=True, slots=True)
class Measure:
    """What a head may do; ``of`` takes weights ``(..., queries, keys)`` to a share of them."""

    name: str
    description: str
    of: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Found:
    """A head by its numbers, which begin at 1, and its score."""

    layer: int
    head: int
    score: float

    def __str__(self) -> str:
        return f"layer {self.layer} head {self.head}: {100 * self.score:.0f} %"


def join_words(attention: Attention) -> Attention:
    """The weights between words: the sum over a key's word-pieces, the mean over a query's."""
    queries, words = _words(attention.queries)
    keys, read = _words(attention.keys)
    weights = queries / queries.sum(1, keepdim=True) @ attention.weights @ keys.T
    return Attention(queries=words, keys=read, weights=weights)


def mark_pieces(attention: Attention) -> Attention:
    """The weights between word-pieces, those that continue a word with a dot before them.

    Sentencepiece's own mark, for a word's beginning, is in few fonts.
    """
    queries, keys = (
        [
            piece.removeprefix(SPACE_SYMBOL)
            if piece.startswith(SPACE_SYMBOL) or piece in _ENDS
            else f"·{piece}"
            for piece in pieces
        ]
        for pieces in (attention.queries, attention.keys)
    )
    return Attention(queries=queries, keys=keys, weights=attention.weights)


def _words(pieces: Sequence[str]) -> tuple[Tensor, list[str]]:
    """Which word each word-piece belongs to, ``(words, pieces)`` of 0 and 1, and the words.

    Words end at spaces, and where letters or digits meet other characters.
    """
    index: list[int] = []
    words: list[str] = []
    for piece in pieces:
        text = piece.removeprefix(SPACE_SYMBOL)
        continues = words and text == piece and not {text, words[-1]} & {*_ENDS}
        if not (continues and (not words[-1] or _is_word(words[-1]) == _is_word(text))):
            words.append("")
        words[-1] += text
        index.append(len(words) - 1)
    return torch.nn.functional.one_hot(torch.tensor(index)).T.float(), words


def _is_word(text: str) -> bool:
    return any(character.isalnum() for character in text)


def rank(attention: Attention, measure: Measure) -> list[Found]:
    """All heads, the highest score first; the earlier layer and head where two are equal."""
    scores: list[list[float]] = measure.of(attention.weights).tolist()
    found = [
        Found(layer, head, score)
        for layer, row in enumerate(scores, start=1)
        for head, score in enumerate(row, start=1)
    ]
    return sorted(found, key=lambda x: -x.score)


def _relative(offset: int, first: int = 0) -> Callable[[Tensor], Tensor]:
    """The mean weight on the key ``offset`` places on, over the queries from ``first`` on that have
    one.
    """

    def mean(weights: Tensor) -> Tensor:
        diagonal = weights.diagonal(offset, dim1=-2, dim2=-1)[..., first:]
        return diagonal.sum(-1) / max(1, diagonal.size(-1))

    return mean


def _far(end: int, shift: int = 0) -> Callable[[Tensor], Tensor]:
    """The mean over queries of the largest weight on one key ``_FAR`` words away or more.

    Args:
        end: the key that is no word, and is left out
        shift: what the number of a query is above that of the key of the same word
    """

    def mean(weights: Tensor) -> Tensor:
        queries, keys = torch.arange(weights.size(-2)), torch.arange(weights.size(-1))
        far = (queries[:, None] + shift - keys).abs() >= _FAR
        far[:, end] = False
        return (weights * far).amax(-1).mean(-1)

    return mean


_FAR_AWAY = f"largest weight on one word {_FAR} or more away"
_END = Measure("end", "weight on the end of the sentence", lambda w: w[..., -1].mean(-1))
MEASURES: dict[Kind, tuple[Measure, ...]] = {
    "encoder": (
        Measure("previous word", "weight on the word before", _relative(-1)),
        Measure("same word", "weight on the word itself", _relative(0)),
        Measure("next word", "weight on the word after", _relative(1)),
        Measure("far away", f"{_FAR_AWAY}, the end left out", _far(-1)),
        _END,
    ),
    "decoder": (
        Measure(
            "previous word",
            "weight on the word just written, from the second on",
            _relative(0, first=1),
        ),
        Measure("far away", f"{_FAR_AWAY}, the start left out", _far(0, 1)),
        Measure("start", "weight on the start of the sentence", lambda w: w[..., 0].mean(-1)),
    ),
    "cross": (
        Measure("one word", "largest weight on one word", lambda w: w.amax(-1).mean(-1)),
        Measure("same place", "weight on the word at the same place", _relative(0)),
        _END,
    ),
}
