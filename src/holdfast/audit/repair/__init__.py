"""Repair: the diagnosis of records that break an invariant, and their correction."""
