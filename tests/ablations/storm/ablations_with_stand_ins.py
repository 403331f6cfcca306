"""``python -m ablations`` whose runs are stand-ins, see ``stand_in.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ablations import run
from ablations.runs import forkserver, process
from ablations.runs.executor import Job, Place

STAND_IN = Path(__file__).with_name("stand_in.py")
_SETTINGS = {name: value for name, value in os.environ.items() if name.startswith("STORM_")}


def start(directory: Path, job: Job, place: Place) -> subprocess.Popen[bytes]:
    """In place of ``ablations.runs.process.start``; Ray takes it to its nodes as it is."""
    with (directory / process.LOG_FILE).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-S", str(STAND_IN), str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=job.folder,
            env=process.environment(job, place) | _SETTINGS,
            start_new_session=True,
        )


process.start = forkserver.start = start
# What a driver does at its end takes it longer than all the stand-ins together.
run._report_table = lambda root: lambda: None
run.track_table_run = lambda root: None

from ablations.__main__ import main  # noqa: E402  (after the stand-in is in place)

if __name__ == "__main__":
    sys.exit(main())
