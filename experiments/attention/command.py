"""Draw the attention for one sentence, as plot or page.

The page draws its lines with a script of its own: Vega-Lite cannot make words and heads that the
keyboard reaches, and would add 0.9 MB.
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
    mark_pieces,
)
from experiments.evaluate.trained import load_trained
from experiments.figures.render import DrawingError, to_pdf, to_png, to_svg
from experiments.records.experiment import load_experiment
from transformer.errors import InputError
from transformer.evaluation.attention_weights import Attention, Kind, attend
from transformer.files import check_output, check_plain, write_output

_ENDINGS = (".html", ".svg", ".pdf", ".png")
_TEMPLATES = Path(__file__).parent / "templates"
# The page has each weight as a whole number of thousandths, which keeps it small.
_THOUSAND = 1_000


def show_attention(
    directory: Path,
    sentence: str,
    kind: Kind,
    layer: int | None,
    heads: str | None,
    words: bool,
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
    check_output(path)
    if output is None:
        check_plain(path)
    chosen = _parse_heads(heads, model.num_heads)
    trained = load_trained(directory, average)
    pieces = attend(
        trained.model,
        trained.vocabulary,
        trained.as_source(sentence),
        trained.experiment.config.decoding,
        translation=translation,
        constrain=trained.constrain,
    )
    change = join_words if words else mark_pieces
    found: dict[Kind, Attention] = {name: change(x) for name, x in pieces.items()}
    last = len(found[kind].weights)
    layer = last if layer is None else layer
    if not 1 <= layer <= last:
        raise InputError(f"there is no layer {layer}: the model has layers 1 to {last}")
    if ending == ".html":
        page = attention_page(found, run=str(directory), kind=kind, layer=layer, heads=chosen)
        write_output(path, page)
    else:
        draw = {".svg": str, ".pdf": to_pdf, ".png": to_png}[ending]
        try:
            drawn = draw(to_svg(attention_figure(kind, found[kind], layer, chosen)))
        except DrawingError as error:
            raise InputError(f"{error}; --output with a name in .html needs no drawing") from error
        write_output(path, drawn)
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
    """Render the page with a sentence's attention weights.

    Args:
        run: the name of the run, for the title
        kind, layer, heads: what the page shows first
    """
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    num_layers = max(len(attention.weights) for attention in found.values())
    num_heads = found["encoder"].weights.shape[1]
    return environment.get_template("attention.html.j2").render(
        run=run,
        source=_text(found["encoder"]),
        translation=_text(found["cross"]),
        names=NAMES,
        layers=range(1, num_layers + 1),
        heads={head: colour_of(head) for head in range(1, num_heads + 1)},
        start={"kind": kind, "layer": layer, "heads": heads},
        views={
            kind: {
                "reading": READING[kind],
                "queries": attention.queries,
                "keys": attention.keys,
                "weights": (attention.weights * _THOUSAND).round().int().tolist(),
            }
            for kind, attention in found.items()
        },
        style=(_TEMPLATES / "attention.css").read_text(encoding="utf-8"),
        script=(_TEMPLATES / "attention.js").read_text(encoding="utf-8"),
    )


def _text(attention: Attention) -> str:
    return " ".join(attention.queries[:-1]).replace(" ·", "")
