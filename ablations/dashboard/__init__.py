"""A read-only page of tables and searches that polls."""
