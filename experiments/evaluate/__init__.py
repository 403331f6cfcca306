"""Using and checking trained runs.

A run's directory goes in; out come scores (``scoring``), translations (``translation``), a test of
whether two systems differ (``significance``), or the files that have changed (``verify``).
"""
