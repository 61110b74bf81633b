"""The HTTP API under /api/v1: the same reads and acts as the pages, for programs with a token."""
