"""Trained runs in use: loaded, scored, compared and verified."""
