"""Sudden death of workers, submitters, databases and parents: what was answered stays true."""
