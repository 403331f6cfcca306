"""A read-only page of tables and searches that polls.

No connection and no session is kept, and any number of viewers share one reading of the files.
"""
