"""Block signals in Python's fork server, which imports this first.

A terminal sends them to the server too, which would end the runs. A run has a group of its own, and
unblocks them once it can handle them.
"""

import signal

from experiments.records.progress import STOP_SIGNALS

signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
