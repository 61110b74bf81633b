"""What checks: seals, invariants, repair, what was at a time, and snapshots."""
