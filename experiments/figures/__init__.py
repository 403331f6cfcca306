"""Plots: one Vega-Lite specification for SVG, PNG, PDF and pages."""
