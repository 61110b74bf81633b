"""The SQLite dialect."""
