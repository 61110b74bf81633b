"""The pure core: machines, records, decisions, projections, digests and errors. No clock, no I/O, no randomness."""
