"""The peers of the comparison: each one runs in its own virtual environment."""
