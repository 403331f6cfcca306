"""Draw a sentence's attention, as figure or page.

The page's script draws its lines itself. Vega-Lite cannot make words and heads that the keyboard
reaches, and would add 0.9 MB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from experiments.attention.figure import (
    NAMES,
    READING,
    attention_figure,
    colour_of,
    join_words,
)
from experiments.evaluate.trained import load_trained
from experiments.figures.render import to_pdf, to_png, to_svg
from experiments.records.experiment import load_experiment
from transformer.errors import InputError
from transformer.evaluation.attention_weights import Attention, Kind, attend
from transformer.files import write_atomically

_ENDINGS = (".html", ".svg", ".pdf", ".png")
_TEMPLATES = Path(__file__).parent / "templates"
# Weights are written in the page as whole numbers of this, which keeps it small.
_PARTS = 1_000


def show_attention(
    directory: Path,
    sentence: str,
    kind: Kind,
    layer: int | None,
    heads: str | None,
    translation: str | None,
    average: int | None,
    output: Path | None,
) -> None:
    """Draw what the heads of a run attend to in a sentence, and print where."""
    path = output or directory / "attention.html"
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        raise InputError(f"{path} cannot be written: its name must end in {', '.join(_ENDINGS)}")
    model = load_experiment(directory).config.model
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: --output cannot be written")
    layer = model.num_layers if layer is None else layer
    if not 1 <= layer <= model.num_layers:
        raise InputError(f"there is no layer {layer}: the model has layers 1 to {model.num_layers}")
    chosen = _parse_heads(heads, model.num_heads)
    trained = load_trained(directory, average)
    decoding = trained.experiment.config.decoding
    pieces = attend(trained.model, trained.vocabulary, sentence, decoding, translation=translation)
    found: dict[Kind, Attention] = {name: join_words(x) for name, x in pieces.items()}
    if ending == ".html":
        page = attention_page(found, run=str(directory), kind=kind, layer=layer, heads=chosen)
        write_atomically(path, page)
    else:
        svg = to_svg(attention_figure(kind, found[kind], layer, chosen))
        draw = {".svg": str, ".pdf": to_pdf, ".png": to_png}[ending]
        write_atomically(path, draw(svg))
    print(path)


def _parse_heads(text: str | None, num_heads: int) -> Sequence[int]:
    every = range(1, num_heads + 1)
    if text is None:
        return every
    words = [word.strip() for word in text.split(",")]
    if not set(words) <= set(map(str, every)):
        raise InputError(f"--heads is {text!r}, but takes numbers such as 1,{num_heads}")
    return sorted(set(map(int, words)))


def attention_page(
    found: Mapping[Kind, Attention], *, run: str, kind: Kind, layer: int, heads: Sequence[int]
) -> str:
    """The page of a sentence's weights between words.

    Args:
        run: its name
        kind, layer, heads: what the page shows first
    """
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
