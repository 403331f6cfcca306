"""Named experiments, and how one of them is run.

An experiment (a configuration with a name) comes from ``catalog``; ``run`` trains it in a directory
and leaves checkpoints, translations and a ``result.json``; ``evaluate`` and ``export`` read what a
run has left. ``callbacks`` is what the Trainer calls on the way, ``workload`` stands in
for a corpus where speed is measured, and ``cli`` declares the commands of
``python -m experiments``.
"""
