"""The report of a table: a pure function of the result files in its directory.

A table's directory enters, ``report.md`` and ``report.html`` leave. ``summary`` reads the files,
``statistics`` has the formulas, ``verdicts`` and ``notes`` put them into words, and ``page`` lays
out any report, that of a search too.
"""
