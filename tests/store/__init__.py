"""The conformance suite of the store's verbs: every test runs on SQLite and on PostgreSQL."""
