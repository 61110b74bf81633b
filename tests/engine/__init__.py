"""Tests of what moves: the API, the committer, retries, events, and FM_001."""
