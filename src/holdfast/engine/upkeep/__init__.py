"""Duties of a worker's keeper, done once a period: checks, retention, archiving."""
