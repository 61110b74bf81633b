"""Holdfast: a durable work ledger."""
