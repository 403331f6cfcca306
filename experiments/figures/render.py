"""Draw a Vega-Lite specification to files, and the script that draws it in a page."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

from experiments.figures.style import VEGA_LITE, Spec
from experiments.run.files import write_atomically
from transformer.data.fetching.cache import cache_directory

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
