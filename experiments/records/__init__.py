"""The files of a run's directory: what everybody reads of a run. Nothing here imports torch."""
