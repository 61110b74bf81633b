"""Readers of headers: enough of each format to tell whether an object is whole and what it is about.

Invariants: a reader takes a function that reads a part, and the size; it never asks for the whole; what contradicts the
format is `Damaged`, with an issue code; any bytes give an answer or `Damaged`, never another exception.
"""

from __future__ import annotations

from collections.abc import Callable

Read = Callable[[int, int], bytes]  # (start, length) -> at most so many bytes


class Damaged(Exception):
    """An object that is not what its format says; the issue is a code, the detail is for people."""

    def __init__(self, issue: str, detail: str) -> None:
        super().__init__(detail)
        self.issue, self.detail = issue, detail


def exactly(read: Read, start: int, length: int, what: str) -> bytes:
    """Return a part that must be there whole."""
    found = read(start, length)
    if len(found) != length:
        raise Damaged("truncated", f"{what} ends after {len(found)} of {length} bytes")
    return found
