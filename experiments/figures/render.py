"""Draw a Vega-Lite specification to files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

import vl_convert

from experiments.figures.style import VEGA_LITE, Spec
from transformer.data.fetch.cache import cache_directory
from transformer.files import write_atomically

_PIXELS = 2  # of a PNG for each unit of the figure
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def to_svg(spec: Spec) -> str:
    """The figure as SVG."""
    return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)


def to_png(svg: str) -> bytes:
    """An SVG as PNG, with two pixels for each unit."""
    return vl_convert.svg_to_png(svg, scale=_PIXELS)


def to_pdf(svg: str) -> bytes:
    """An SVG as PDF, with text that can be searched."""
    return vl_convert.svg_to_pdf(svg)


def on_white(svg: str) -> str:
    """An SVG with a white background, for viewers with a dark one."""
    return svg.replace(">", '><rect width="100%" height="100%" fill="white"/>', 1)


def draw(specs: Mapping[str, Spec]) -> dict[str, tuple[str, bytes]]:
    """Figures as SVG, and as PNG on white, by name."""
    svgs = {name: to_svg(spec) for name, spec in specs.items()}
    return {name: (svg, to_png(on_white(svg))) for name, svg in svgs.items()}


@cache
def script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script of 0.9 MB that needs no network.

    Bundling takes some seconds, so the script is kept in the cache.
    """
    release = version("vl-convert-python")
    path = cache_directory() / "figures" / f"vega-{release}-{VEGA_LITE}.js"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        bundle = vl_convert.javascript_bundle(_SNIPPET, vl_version=VEGA_LITE)
        bundle = bundle.replace("</script", "<\\/script")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, bundle)
    except OSError:
        pass  # a cache that cannot be written costs time only
    return bundle
