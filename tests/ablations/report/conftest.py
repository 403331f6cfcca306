"""Reports that several modules read."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol
from unittest import mock

import pytest

from tests.ablations.report.samples import fill_and_report


class Reported(Protocol):
    def __call__(self, name: str, *, drawn: bool = False) -> Path: ...


def _empty_figures(names: Iterable[str]) -> dict[str, tuple[str, bytes]]:
    return dict.fromkeys(names, ("<svg/>", b""))


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """The directory of a table of ``samples.GOLDEN``, with its report; written once.

    Its figures are empty unless it is ``drawn``, as drawing takes seconds.
    """

    @functools.cache
    def report(name: str, *, drawn: bool = False) -> Path:
        root = tmp_path_factory.mktemp(name)
        draws = (
            nullcontext() if drawn else mock.patch("ablations.report.layout.draw", _empty_figures)
        )
        with draws:
            fill_and_report(name, root)
        return root

    return report
