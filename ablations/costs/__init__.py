"""Time, FLOPs, memory and disk that a table takes."""
