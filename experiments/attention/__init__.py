"""Attention weights of heads, as plots and as a page."""
