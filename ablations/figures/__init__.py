"""Plots that reports and the dashboard share, as Vega-Lite specifications."""
