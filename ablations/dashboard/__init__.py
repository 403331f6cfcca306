"""A read-only page of tables and searches, which polls a server of the standard library.

No connection and no session is kept, and any number of viewers share one reading of the files.
"""
