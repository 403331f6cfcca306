"""An interactive page of attention in one file.

Its script draws the lines itself. Vega-Lite cannot make words and heads that the keyboard reaches,
and would add 0.9 MB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.attention.figure import NAMES, READING, colour_of
from transformer.evaluation.attention_weights import Attention, Kind

_TEMPLATES = Path(__file__).parent / "templates"
# Weights are written as whole numbers of this, which keeps the page small.
_PARTS = 1_000


def attention_page(
    found: Mapping[Kind, Attention], *, run: str, kind: Kind, layer: int, heads: Sequence[int]
) -> str:
    """The page of a sentence's weights between words.

    Args:
        run: its name
        kind, layer, heads: what the page shows first
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    num_layers, num_heads = found["encoder"].weights.shape[:2]
    return environment.get_template("attention.html.j2").render(
        run=run,
        source=" ".join(found["encoder"].queries[:-1]),
        translation=" ".join(found["cross"].queries[:-1]),
        names=NAMES,
        layers=range(1, num_layers + 1),
        heads={head: colour_of(head) for head in range(1, num_heads + 1)},
        start={"kind": kind, "layer": layer, "heads": heads},
        views={
            kind: {
                "reading": READING[kind],
                "queries": attention.queries,
                "keys": attention.keys,
                "weights": (attention.weights * _PARTS).round().int().tolist(),
            }
            for kind, attention in found.items()
        },
        style=(_TEMPLATES / "attention.css").read_text(encoding="utf-8"),
        script=(_TEMPLATES / "attention.js").read_text(encoding="utf-8"),
    )
