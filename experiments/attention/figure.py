"""Draw attention as the paper's figures 3 to 5 do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from experiments.figures.style import COLOURS, GREY, Spec, figure
from transformer.data.vocabulary import SPACE_SYMBOL
from transformer.evaluation.attention_weights import Attention, Kind

# One colour for each head; if there are more heads, they repeat.
HEAD_COLOURS = (*COLOURS, "#882255", "#808000", "#44AA99", GREY)
NAMES: dict[Kind, str] = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Encoder-decoder attention",
}
READING: dict[Kind, str] = {
    "encoder": "Each word on the left attends to words of its sentence on the right.",
    "decoder": "To write each word on the left, the model attends to what it has written so far.",
    "cross": "To write each word on the left, the model attends to words of the source.",
}
# Many faint lines hide the strong ones, and make the file large.
_FAINTEST = 0.05
_ROW, _WIDTH = 19, 150  # in pixels: the height of a word, and the gap between the two columns
_SPREAD = 9  # pixels over which the parallel lines of several heads are spread
# Control word-pieces, which stand alone.
_ENDS = {"<s>", "</s>"}


def mark_pieces(attention: Attention) -> Attention:
    """Put a dot before each word-piece that continues a word."""
    queries, keys = (list(map(_marked, side)) for side in (attention.queries, attention.keys))
    return replace(attention, queries=queries, keys=keys)


def _marked(piece: str) -> str:
    # sentencepiece marks the beginning of a word instead, with a character that few fonts have
    begins = piece.startswith(SPACE_SYMBOL) or piece in _ENDS
    return piece.removeprefix(SPACE_SYMBOL) if begins else f"·{piece}"


def join_words(attention: Attention) -> Attention:
    """Weights between words: summed over a key's word-pieces, averaged over a query's."""
    of_query, queries = _words(attention.queries)
    of_key, keys = _words(attention.keys)
    weights = of_query / of_query.sum(1, keepdim=True) @ attention.weights @ of_key.T
    return Attention(queries=queries, keys=keys, weights=weights)


def _words(pieces: Sequence[str]) -> tuple[Tensor, list[str]]:
    """Return a matrix ``(words, pieces)``, 1 where the piece belongs to the word, and the words.

    Words end at spaces, and where letters or digits meet other characters.
    """
    index: list[int] = []
    words: list[str] = []
    for piece in pieces:
        text = piece.removeprefix(SPACE_SYMBOL)
        continues = words and text == piece and not {text, words[-1]} & _ENDS
        if not (continues and (not words[-1] or _is_word(words[-1]) == _is_word(text))):
            words.append("")
        words[-1] += text
        index.append(len(words) - 1)
    return torch.nn.functional.one_hot(torch.tensor(index)).T.float(), words


def _is_word(text: str) -> bool:
    return any(character.isalnum() for character in text)


def attention_figure(kind: Kind, attention: Attention, layer: int, heads: Sequence[int]) -> Spec:
    """Draw words in two columns, joined by lines as strong as the weights, one colour per head.

    ``layer`` and ``heads`` are counted from 1.
    """
    several = len(heads) > 1
    colours = {
        "field": "head",
        "type": "nominal",
        "scale": {"domain": list(heads), "range": [colour_of(head) for head in heads]},
        "legend": {"title": "head", "symbolType": "stroke"} if several else None,
    }
    numbers = ", ".join(map(str, heads))
    title = f"layer {layer}, {'heads' if several else 'head'} {numbers}"
    weights = attention.weights[layer - 1]
    return figure(
        {
            "text": NAMES[kind],
            "subtitle": [READING[kind], f"Weights below {100 * _FAINTEST:.0f} % are left out."],
            "anchor": "start",
            "offset": 16,
        },
        concat=[_draw_heads(attention, title, _lines(weights, heads), colours)],
        background="white",  # without one, faint lines have wrong colours in PNGs
        padding=8,
    )


def _draw_heads(
    attention: Attention, title: str, strokes: list[dict[str, float]], colours: Spec
) -> Spec:
    rows = max(len(attention.queries), len(attention.keys))
    height = {"type": "quantitative", "axis": None, "scale": {"domain": [rows - 0.5, -0.5]}}
    width = {"type": "quantitative", "axis": None, "scale": {"domain": [0, 1], "nice": False}}
    lines: Spec = {
        "data": {"values": strokes},
        "mark": "rule",
        "encoding": {
            "x": {"datum": 0, **width},
            "x2": {"datum": 1},
            "y": {"field": "query", **height},
            "y2": {"field": "key"},
            "color": colours,
            "strokeOpacity": _strength([0, 1]),
            "strokeWidth": _strength([0.5, 3]),
        },
    }
    columns = [
        {
            "data": {"values": [{"row": row, "word": word} for row, word in enumerate(words)]},
            "mark": {"type": "text", "align": align, "dx": dx, "fontSize": 12, "limit": 0},
            "encoding": {
                "x": {"datum": x, **width},
                "y": {"field": "row", **height},
                "text": {"field": "word"},
            },
        }
        for words, align, dx, x in (
            (attention.queries, "right", -5, 0),
            (attention.keys, "left", 5, 1),
        )
    ]
    return {
        "title": {"text": title, "fontSize": 12, "fontWeight": "normal"},
        "width": _WIDTH,
        "height": _ROW * rows,
        "view": {"stroke": None},
        "layer": [lines, *columns],
    }


def colour_of(head: int) -> str:
    """The colour of a head in every plot and page."""
    return HEAD_COLOURS[(head - 1) % len(HEAD_COLOURS)]


def _strength(bounds: list[float]) -> Spec:
    return {
        "field": "weight",
        "type": "quantitative",
        "scale": {"domain": [0, 1], "range": bounds},
        "legend": None,
    }


def _lines(weights: Tensor, heads: Sequence[int]) -> list[dict[str, float]]:
    """The lines of a layer's ``weights``, ``(heads, queries, keys)``."""
    step = min(2.5, _SPREAD / len(heads)) / _ROW
    lines: list[dict[str, float]] = []
    for place, head in enumerate(heads):
        offset = (place - (len(heads) - 1) / 2) * step
        rows: list[list[float]] = weights[head - 1].tolist()
        lines += [
            {
                "query": round(query + offset, 3),
                "key": round(key + offset, 3),
                "head": head,
                "weight": round(weight, 3),
            }
            for query, row in enumerate(rows)
            for key, weight in enumerate(row)
            if weight >= _FAINTEST
        ]
    return lines
