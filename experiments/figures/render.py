"""Draw a Vega-Lite specification to files.

vl_convert is native code: it aborts its process when memory is short, and may hang. So it runs in a
process of its own.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from experiments.figures.style import VEGA_LITE, Spec
from transformer.data.fetch.cache import cache_directory
from transformer.errors import InputError
from transformer.files import write_atomically

_PIXELS = 2  # of a PNG for each unit of the plot
_SNIPPET = "window.vegaEmbed = vegaEmbed;"
_SECONDS = 120  # for all plots of a report, which take some seconds
_MOST_LETTERS = 200  # of a message

Drawn = TypeVar("Drawn")


class DrawingError(InputError):
    """The process that draws failed, or took too long."""

    def __init__(self, why: str) -> None:
        super().__init__(f"plots cannot be drawn here: {why}")


def to_svg(spec: Spec) -> str:
    """The plot as SVG."""
    return _apart(_to_svg, spec)


def to_png(svg: str) -> bytes:
    """An SVG as PNG, with two pixels for each unit."""
    return _apart(_to_png, svg)


def to_pdf(svg: str) -> bytes:
    """An SVG as PDF, with text that can be searched."""
    return _apart(_to_pdf, svg)


def on_white(svg: str) -> str:
    """An SVG with a white background, for viewers with a dark one."""
    return svg.replace(">", '><rect width="100%" height="100%" fill="white"/>', 1)


def draw(specs: Mapping[str, Spec]) -> dict[str, tuple[str, bytes]]:
    """Plots as SVG, and as PNG on white, by name; all of them in one process.

    Raises:
        DrawingError: if they cannot be drawn.
    """
    return _apart(_draw, dict(specs)) if specs else {}


@cache
def script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script of 0.9 MB that needs no network; empty, with a
    warning, if it cannot be made.

    Bundling takes some seconds, so the script is kept in the cache.
    """
    release = version("vl-convert-python")
    path = cache_directory() / "figures" / f"vega-{release}-{VEGA_LITE}.js"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    try:
        bundle = _apart(_bundle, _SNIPPET)
    except DrawingError as error:
        warnings.warn(f"pages have no interactive plots: {error}", stacklevel=2)
        return ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, bundle)
    except OSError:
        pass  # a cache that cannot be written costs time only
    return bundle


def _apart(work: Callable[[Any], Drawn], given: object) -> Drawn:
    """Call ``work``, a function of this module, in a separate process, and return its result."""
    folders = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))
    try:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", __name__, work.__name__, str(_SECONDS)],
            input=pickle.dumps(given),
            capture_output=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))},
            check=False,
        )
    except OSError as error:  # as of a machine that starts no more processes
        raise DrawingError(f"no process can be started ({error})") from error
    if ended.returncode == 0:
        return pickle.loads(ended.stdout)  # which this module has written
    if ended.returncode == -signal.SIGALRM:
        raise DrawingError(f"it takes more than {_SECONDS} seconds")
    if ended.returncode < 0:
        signalled = f"signal {-ended.returncode} ended the process that draws them"
        raise DrawingError(f"{signalled}, as it does where memory is short")
    lines = ended.stderr.decode(errors="replace").splitlines()
    said = [line for line in lines if line[:1].strip()]  # without the places in the code
    raise DrawingError(said[-1][:_MOST_LETTERS] if said else "no reason was given")


# Everything below runs in a separate process, the only one that imports vl_convert.


def _to_svg(spec: Spec) -> str:
    import vl_convert

    return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)


def _to_png(svg: str) -> bytes:
    import vl_convert

    return vl_convert.svg_to_png(svg, scale=_PIXELS)


def _to_pdf(svg: str) -> bytes:
    import vl_convert

    return vl_convert.svg_to_pdf(svg)


def _draw(specs: Mapping[str, Spec]) -> dict[str, tuple[str, bytes]]:
    svgs = {name: _to_svg(spec) for name, spec in specs.items()}
    return {name: (svg, _to_png(on_white(svg))) for name, svg in svgs.items()}


def _bundle(snippet: str) -> str:
    import vl_convert

    bundle = vl_convert.javascript_bundle(snippet, vl_version=VEGA_LITE)
    return bundle.replace("</script", "<\\/script")


def _answer() -> None:
    """Call the named function with what standard input holds, and write what it returns."""
    signal.alarm(int(sys.argv[2]))  # also ends native code, and without a parent
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)  # whatever else is printed
        pickle.dump(globals()[sys.argv[1]](pickle.load(sys.stdin.buffer)), answer)


if __name__ == "__main__":
    _answer()
