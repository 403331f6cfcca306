"""Drawing of figures.

A Vega-Lite specification enters; ``render`` draws it as SVG, PNG and PDF, and a page that includes
``render.script`` shows the same one with tooltips. ``style`` has what all figures share.
"""
