"""Carry out runs here or on a Ray cluster.

The files say what is done: ``base/seed-1`` is a finished run, ``base/seed-1.attempt-2`` one in
progress. Only the driver writes Optuna's journal, which is rebuilt from the files if it is lost.
"""
