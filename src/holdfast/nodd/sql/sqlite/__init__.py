"""Statements of the application."""
