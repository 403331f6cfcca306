"""Keep a driver's signals from its fork server.

The server imports this first: a terminal sends them to it too, which would end it and so the runs.
A run has a group of its own, and unblocks them once it can handle them.
"""

import signal

from experiments.records.progress import STOP_SIGNALS

signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
