"""Files that carry a ledger or parts of it: snapshots, archives, slips."""
