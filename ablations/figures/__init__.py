"""The figures of reports and of the dashboard.

Values enter, a Vega-Lite specification leaves: ``render`` draws it as SVG and PNG, and a page that
includes ``render.script`` shows the same one with tooltips. ``style`` has what all figures share,
``curves`` reads and draws learning curves, ``search`` draws what a search has found.
"""
