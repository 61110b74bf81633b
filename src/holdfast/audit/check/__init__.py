"""Check: the catalogue of invariants, and the rules that look for violations."""
