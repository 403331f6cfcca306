"""Trained models for other programs, and search by CTranslate2."""
