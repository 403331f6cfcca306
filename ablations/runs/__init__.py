"""Carry out runs here or on a Ray cluster.

Files decide what is done: ``base/seed-1`` is a finished run, ``base/seed-1.attempt-2`` one in
progress. The driver is the only writer of Optuna's journal, which is rebuilt if it is lost.
"""
