"""The write-ahead log's face over the ledger."""
