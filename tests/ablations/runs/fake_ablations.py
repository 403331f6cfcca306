"""``python -m ablations`` with stand-ins for the runs: for tests that need a whole process."""

import sys

from ablations import run
from ablations.runs import forkserver, process
from tests.ablations.samples import start_fake

process.start = forkserver.start = start_fake
# The report and W&B take longer than all the stand-ins together.
run._report_table = lambda root: lambda: None
run.track_table_run = lambda root: None

from ablations.__main__ import main  # noqa: E402  (after the stand-in is in place)

sys.exit(main())
