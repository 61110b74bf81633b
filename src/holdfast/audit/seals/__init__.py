"""Seals: a chain of hashes over the journal, and its verification."""
