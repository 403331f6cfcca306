"""Using and checking trained runs.

A run's directory goes in; out come scores (``scoring``), a loaded model and its translations
(``trained``), a test of whether two systems differ (``significance``), or the files that have
changed (``verify``).
"""
