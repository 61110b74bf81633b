"""Tests of explanations: why a job is not running."""
