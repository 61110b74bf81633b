"""Tests of the pure core: the table, decisions, projections, digests and errors."""
