"""Load, score and compare trained runs, and translate with them."""
