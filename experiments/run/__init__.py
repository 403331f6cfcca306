"""One run: an :class:`Experiment` and a directory go in, a :class:`Result` comes out.

:func:`experiments.run.run.run` is the only place with a Trainer and a logger. The other modules say
what stands in a run's directory, who may write to it, and on which devices it runs.
"""
