"""Side-by-side benchmarks, run with `make bench`."""
