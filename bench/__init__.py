"""Short scripts that measure this project; `make benchmark` runs them."""
