"""The progress of a table or a search, as ``status`` prints it and drivers display it.

In: a directory. Out: text, a live view, or one JSON object with keys that stay the same.
"""
