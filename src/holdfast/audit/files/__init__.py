"""Files with a ledger or parts of it: snapshots, archives, slips."""
