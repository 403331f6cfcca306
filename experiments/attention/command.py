"""Draw a sentence's attention, and list heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.attention.figure import NAMES, Panel, attention_figure
from experiments.attention.heads import MEASURES, join_words, mark_pieces, rank
from experiments.attention.page import attention_page
from experiments.evaluate.trained import load_trained
from experiments.figures.render import to_pdf, to_png, to_svg
from experiments.records.experiment import load_experiment
from transformer.errors import InputError
from transformer.evaluation.attention_weights import Attention, Kind, attend
from transformer.files import write_atomically

_ENDINGS = (".html", ".svg", ".pdf", ".png")
# How many heads --find lists for each measure.
_BEST = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """What is drawn: ``layer`` and ``heads`` count from 1, None takes the last and all."""

    kind: Kind
    layer: int | None
    heads: str | None
    words: bool
    find: bool


def show_attention(
    directory: Path,
    sentence: str,
    view: View,
    *,
    translation: str | None,
    average: int | None,
    output: Path | None,
) -> None:
    """Draw what the heads of a run attend to in a sentence, and print where."""
    path = output or directory / "attention.html"
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        raise InputError(f"{path} cannot be written: its name must end in {', '.join(_ENDINGS)}")
    experiment = load_experiment(directory)
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: --output cannot be written")
    config = experiment.config
    layer, heads = _choose(view, config.model.num_layers, config.model.num_heads)
    trained = load_trained(directory, average)
    found = attend(
        trained.model, trained.vocabulary, sentence, config.decoding, translation=translation
    )
    shown = (join_words if view.words else mark_pieces)(found[view.kind])
    if view.find:
        print("\n".join(_listing(view.kind, shown)))
    if ending == ".html":
        page = attention_page(
            found, run=str(directory), kind=view.kind, layer=layer, heads=heads, words=view.words
        )
        write_atomically(path, page)
    else:
        panels = _best(view.kind, shown) if view.find else [_panel(layer, heads)]
        svg = to_svg(attention_figure(view.kind, shown, panels))
        draw = {".svg": str, ".pdf": to_pdf, ".png": to_png}[ending]
        write_atomically(path, draw(svg))
    print(path)


def _choose(view: View, num_layers: int, num_heads: int) -> tuple[int, list[int]]:
    if view.find and (view.layer is not None or view.heads is not None):
        raise InputError("--find chooses layers and heads itself: leave out --layer and --heads")
    layer = num_layers if view.layer is None else view.layer
    if not 1 <= layer <= num_layers:
        raise InputError(f"there is no layer {layer}: the model has layers 1 to {num_layers}")
    if view.heads is None:
        return layer, list(range(1, num_heads + 1))
    heads: list[int] = []
    for text in view.heads.split(","):
        if not text.strip().isdecimal():
            raise InputError(f"--heads is {view.heads!r}, but takes numbers such as 1,5")
        if not 1 <= int(text) <= num_heads:
            raise InputError(f"there is no head {int(text)}: each layer has heads 1 to {num_heads}")
        heads.append(int(text))
    return layer, sorted(set(heads))


def _panel(layer: int, heads: Sequence[int]) -> Panel:
    numbers = ", ".join(map(str, heads))
    return Panel(f"layer {layer}, head{'s' * (len(heads) > 1)} {numbers}", layer, heads)


def _best(kind: Kind, attention: Attention) -> list[Panel]:
    """The best head for each measure."""
    panels: list[Panel] = []
    for measure in MEASURES[kind]:
        best = rank(attention, measure)[0]
        panels.append(Panel(f"{measure.name}, {best}", best.layer, [best.head]))
    return panels


def _listing(kind: Kind, attention: Attention) -> list[str]:
    lines = [f"{NAMES[kind]}, means over the {len(attention.queries)} on the left, ends included:"]
    for measure in MEASURES[kind]:
        heads = rank(attention, measure)[:_BEST]
        lines.append(f"{measure.name:14} {', '.join(map(str, heads))} ({measure.description})")
    return lines
