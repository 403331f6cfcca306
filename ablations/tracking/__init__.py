"""Tables and searches in W&B: offline runs pushed, a table as a run of its own, a workspace."""
