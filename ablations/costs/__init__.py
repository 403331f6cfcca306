"""Time, FLOPs and disk that a table takes."""
