"""Block the driver's stop signals in its fork server.

The server imports this first. A terminal sends Ctrl-C to the server too, which would end it and all
runs with it. Each run has its own process group and unblocks the signals once it can handle them.
"""

import signal

from experiments.records.progress import STOP_SIGNALS

signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
