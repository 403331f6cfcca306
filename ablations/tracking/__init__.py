"""Tables and searches in W&B."""
