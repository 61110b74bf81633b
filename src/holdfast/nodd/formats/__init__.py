"""Readers of headers: enough of each format to see whether an object is complete, and to extract its metadata.

Invariants: a reader gets a function that reads a range, and the size of the object; bytes that contradict the format
raise `Damaged` with an issue code; any bytes give a result or `Damaged`, never another exception.
"""

from __future__ import annotations

from collections.abc import Callable

Read = Callable[[int, int], bytes]  # (start, length) -> at most so many bytes


class Damaged(Exception):
    """An object contradicts its format; `issue` is a code, `detail` is a message for people."""

    def __init__(self, issue: str, detail: str) -> None:
        super().__init__(detail)
        self.issue, self.detail = issue, detail


def exactly(read: Read, start: int, length: int, what: str) -> bytes:
    """Return a range; raise Damaged if the object ends before it."""
    found = read(start, length)
    if len(found) != length:
        raise Damaged("truncated", f"{what} ends after {len(found)} of {length} bytes")
    return found
