"""Trained models for other programs, and CTranslate2 for our own search."""
