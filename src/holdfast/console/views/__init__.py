"""What the pages show: pure functions from a reading of the ledger and parsed filters to structs, without HTTP."""
