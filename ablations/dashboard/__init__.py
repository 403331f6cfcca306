"""A live, read-only view of tables and searches in a browser.

The page polls a server of the standard library for what has changed since its last answer, so that
no connection and no session is kept, and any number of viewers share one reading of the files.
"""
