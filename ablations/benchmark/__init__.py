"""What a fleet adds to the time of its runs, beside the same runs in one process without it."""
