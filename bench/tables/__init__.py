"""Tables with a scale of their own, whose results are not committed yet."""
