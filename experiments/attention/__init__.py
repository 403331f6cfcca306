"""The attention of heads, in figures and a page."""
