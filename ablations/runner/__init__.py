"""Workers that carry out the runs of a table or a search, each run in a process of its own.

In: a :class:`~ablations.runner.run_set.RunSet`, the machine's slots and a database that all
workers share. Out: each run's directory with its result, whichever workers are killed or cut
off. The directories decide; the database can be deleted.
"""
