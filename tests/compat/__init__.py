"""The queue of G over the ledger, on both databases."""
