"""Progress of a table or a search, read from its files alone."""
