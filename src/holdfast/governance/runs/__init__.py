"""Runs of procedures: steps, their lease and grant, and the runner."""
