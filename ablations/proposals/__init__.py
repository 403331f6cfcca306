"""Try changes one by one against a base."""
