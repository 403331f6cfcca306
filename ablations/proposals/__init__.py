"""Try one change after another against a base."""
