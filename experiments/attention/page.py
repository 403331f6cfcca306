"""An interactive page of attention in one file.

Its script draws the lines itself. Vega-Lite cannot make words and heads that the keyboard reaches,
and would add 0.9 MB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.attention.figure import NAMES, READING, colour_of
from experiments.attention.heads import MEASURES, join_words, mark_pieces, rank
from transformer.data.vocabulary import SPACE_SYMBOL
from transformer.evaluation.attention_weights import KINDS, Attention, Kind

_TEMPLATES = Path(__file__).parent / "templates"
# Weights are written as whole numbers of this, which keeps the page small.
_PARTS = 1_000
# How many heads the page names for each measure.
_BEST = 3


def attention_page(
    found: Mapping[Kind, Attention],
    *,
    run: str,
    kind: Kind,
    layer: int,
    heads: Sequence[int],
    words: bool,
) -> str:
    """The page of a sentence's weights.

    Args:
        run: its name
        kind, layer, heads, words: what the page shows first
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    joined = {kind: join_words(found[kind]) for kind in KINDS}
    num_layers, num_heads = found["encoder"].weights.shape[:2]
    return environment.get_template("attention.html.j2").render(
        run=run,
        source=_sentence(found["encoder"]),
        translation=_sentence(found["cross"]),
        names=NAMES,
        layers=range(1, num_layers + 1),
        heads={head: colour_of(head) for head in range(1, num_heads + 1)},
        start={"kind": kind, "layer": layer, "heads": heads, "words": words},
        views={
            kind: {
                "reading": READING[kind],
                "pieces": _view(kind, mark_pieces(found[kind])),
                "words": _view(kind, joined[kind]),
            }
            for kind in KINDS
        },
        style=(_TEMPLATES / "attention.css").read_text(encoding="utf-8"),
        script=(_TEMPLATES / "attention.js").read_text(encoding="utf-8"),
    )


def _sentence(attention: Attention) -> str:
    """The text whose word-pieces, with an end, are the queries."""
    return "".join(attention.queries[:-1]).replace(SPACE_SYMBOL, " ").strip()


def _view(kind: Kind, attention: Attention) -> dict[str, Any]:
    return {
        "queries": attention.queries,
        "keys": attention.keys,
        "weights": (attention.weights * _PARTS).round().int().tolist(),
        "measures": [
            {
                "name": measure.name,
                "description": measure.description,
                "best": [
                    {"layer": x.layer, "head": x.head, "text": str(x)}
                    for x in rank(attention, measure)[:_BEST]
                ],
            }
            for measure in MEASURES[kind]
        ],
    }
