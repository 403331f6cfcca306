"""The figures of reports and of the dashboard, as Vega-Lite specifications.

Values enter, a specification leaves, which :mod:`experiments.figures` draws. ``curves`` reads and
draws learning curves, ``table`` draws what a table has found, ``search`` what a search has.
"""
