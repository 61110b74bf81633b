"""The peers of the side-by-side benchmark: each is driven in a virtual environment of its own."""
