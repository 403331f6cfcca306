"""``python -m ablations`` whose runs are stand-ins: for tests that need a whole process."""

from __future__ import annotations

import sys

from ablations import run
from ablations.runs import process
from tests.ablations.samples import start_stand_in

process.start = process.fork = start_stand_in  # type: ignore[assignment]
# What a driver does at its end takes it longer than all the stand-ins together.
run.write_report = lambda folder: ""
run.track_table_run = lambda root: None

from ablations.cli import PROGRAM  # noqa: E402  (after the stand-in is in place)

if __name__ == "__main__":
    sys.exit(PROGRAM.run())
