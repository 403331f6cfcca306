"""Files of a run's directory; nothing here imports torch."""
