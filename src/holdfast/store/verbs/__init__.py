"""The verbs of a transaction, in groups: `transaction.jobs`, `transaction.grants`. A group is imported on first use."""
