"""Lay out a report as one HTML file, which needs no other file and no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ablations.report.page import Page
from experiments.figures.render import script

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES = Path(__file__).parent / "templates"


def to_html(page: Page, drawn: Mapping[str, str]) -> str:
    """The report as HTML.

    Args:
        drawn: the figures as SVG, by name; the page shows them until its script has replaced them
            by interactive ones
    """
    return _template().render(
        page=page,
        drawn=drawn,
        style=(_TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=_own_script(),
        vega=script() if drawn else "",
    )


def script_hashes() -> str:
    """What a Content-Security-Policy must allow for the scripts within a report's page."""
    digests = (hashlib.sha256(x.encode()).digest() for x in (script(), f"\n{_own_script()}\n"))
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _own_script() -> str:
    return (_TEMPLATES / "report.js").read_text(encoding="utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")
