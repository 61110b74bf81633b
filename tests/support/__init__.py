"""Support for the tests: a real PostgreSQL server, child processes, golden files, and the table of clauses."""
