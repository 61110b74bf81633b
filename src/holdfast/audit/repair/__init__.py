"""Repair: what is wrong with a record, and what puts it right."""
