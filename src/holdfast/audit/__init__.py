"""Checks: seals, invariants, repair, the ledger at an earlier time, and snapshots."""
