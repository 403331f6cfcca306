"""Every percentage of a report is as docs/statistics.md says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ablations.report.calibration import CHECKS, Finding

PAGE = Path(__file__).parents[3] / "docs" / "statistics.md"


@pytest.mark.slow
@pytest.mark.timeout(1_200)  # one takes some minutes on two cores
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_each_percentage_is_as_promised_and_as_the_docs_say(
    check: Callable[[], Iterator[Finding]],
) -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for finding in check():
        assert all(finding.least <= x <= finding.most for x in finding.shares), finding.line
        (said,) = (line for line in lines if line.startswith(finding.head))
        # Other versions of the libraries may round another way.
        figures = [
            [float(x) for x in re.findall(r"[0-9.]+", line.removeprefix(finding.head))]
            for line in (said, finding.line)
        ]
        assert figures[0] == pytest.approx(figures[1], abs=0.5)
