"""Trained models for other programs.

A run goes in; a folder for CTranslate2 or with safetensors comes out. CTranslate2 is also an engine
for our own search, and ``check`` compares the two.
"""
