"""Progress of a table or a search."""
