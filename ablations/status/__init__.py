"""Show the progress of a table or a search."""
