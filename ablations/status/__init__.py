"""How far a table or a search is: what ``status`` prints and what workers display.

In: a directory, or where it is not visible the study in the shared database. Out: text, a live
view, or one JSON object with keys that stay the same.
"""
