"""Draw a Vega-Lite specification to files."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from experiments.figures.style import VEGA_LITE, Spec
from transformer.data.fetch.cache import cache_directory
from transformer.files import write_atomically

if TYPE_CHECKING:
    from loky import ProcessPoolExecutor

_PIXELS = 2  # of a PNG for each unit of the figure
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def to_svg(spec: Spec) -> str:
    """The figure as SVG."""
    import vl_convert

    return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)


def to_png(svg: str) -> bytes:
    """An SVG as PNG, with two pixels for each unit."""
    import vl_convert

    return vl_convert.svg_to_png(svg, scale=_PIXELS)


def to_pdf(svg: str) -> bytes:
    """An SVG as PDF, with text that can be searched."""
    import vl_convert

    return vl_convert.svg_to_pdf(svg)


def on_white(svg: str) -> str:
    """An SVG with a white background, for viewers with a dark one."""
    return svg.replace(">", '><rect width="100%" height="100%" fill="white"/>', 1)


def start_drawing() -> None:
    """Let the process of :func:`draw` load Vega, which takes a second, while the caller works."""
    _process().submit(to_svg, {"mark": "point"})


def draw(specs: Mapping[str, Spec]) -> dict[str, tuple[str, bytes]]:
    """Figures as SVG, and as PNG on white, by name."""
    # While this process makes a figure's PNG, the other draws the next: the last is a short one.
    names = sorted(specs, key=lambda name: len(str(specs[name])), reverse=True)
    svgs = [_process().submit(to_svg, specs[name]) for name in names]
    return {
        name: (svg.result(), to_png(on_white(svg.result())))
        for name, svg in zip(names, svgs, strict=True)
    }


@cache
def _process() -> ProcessPoolExecutor:
    """A process for Vega, which holds Python's lock while it draws."""
    import loky  # unlike the standard library's, its processes do not re-import the user's script

    ignore_ctrl_c = (signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    return loky.ProcessPoolExecutor(1, initializer=signal.signal, initargs=ignore_ctrl_c)


@cache
def script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script of 0.9 MB that needs no network.

    Bundling takes some seconds, so the script is kept in the cache.
    """
    import vl_convert

    release = version("vl-convert-python")
    path = cache_directory() / "figures" / f"vega-{release}-{VEGA_LITE}.js"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        bundle = vl_convert.javascript_bundle(_SNIPPET, vl_version=VEGA_LITE).replace(
            "</script", "<\\/script"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, bundle)
    except OSError:
        pass  # a cache that cannot be written costs time only
    return bundle
