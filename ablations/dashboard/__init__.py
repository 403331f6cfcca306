"""A read-only page that shows tables and searches live."""
