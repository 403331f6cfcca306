"""Experiments by name.

``paper`` has the models of Table 2, ``multi30k`` and ``cldr`` small ones for a laptop. A name may
also stand for a user's own text or Python file (``user_files``) or for the result of a search, and
single fields may be changed for one run (``settings``).
"""
