"""Named experiments, and how one of them is run.

An experiment (a configuration with a name) comes from ``catalog``; ``run`` trains it in a directory
and leaves checkpoints, translations and a ``result.json``, which ``records`` reads; ``evaluate``
and ``export`` use what a run has left. ``callbacks`` is what the Trainer calls on the way, and
``cli`` declares the commands of ``python -m experiments``.
"""
