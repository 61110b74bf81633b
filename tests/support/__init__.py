"""What the tests stand on: a real PostgreSQL server and the table of clauses."""
