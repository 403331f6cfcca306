"""Tables and searches in W&B: a table as a run of its own, what was tracked offline pushed to the
server, and a workspace with the panels of the report. The runs themselves are tracked by
:mod:`experiments.wandb_runs`.
"""
