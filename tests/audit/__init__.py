"""Tests of checks: seals, invariants, repair, the ledger at an earlier time, and snapshots."""
