"""Check: the catalogue of invariants, and the rules that find violations."""
