"""Verbs of counts: how many jobs are in which state, without counting them.

Invariants: a count is the folded counts and the few deltas since; folding and recounting change no sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.machines import JOB, JobState
from holdfast.core.records import time_text
from holdfast.store.rows import unreadable
from holdfast.store.verbs.base import Verbs, WritingVerbs


class Count(msgspec.Struct, frozen=True):
    """How many jobs of one operation and queue are in one state."""

    operation: str
    queue: str
    state: JobState
    n: int


def _count(row: Sequence[Any]) -> Count:
    operation, queue, state, n = row
    if state not in JOB.states:
        raise unreadable(f"of jobs called {state!r}")
    return Count(operation, queue, JobState(state), int(n))


class CountReads(Verbs):
    """Reads counts."""

    def current(self) -> list[Count]:
        """Return how many jobs stand where: the folded counts and the few deltas since."""
        return [_count(row) for row in self.raw()]

    def raw(self) -> list[tuple[str, str, str, int]]:
        """Return the counts as (operation, queue, state, n), whatever the states are called."""
        return [(operation, queue, state, int(n)) for operation, queue, state, n in self._run("read_counts")]

    def as_of(self, at: datetime) -> tuple[list[Count], int]:
        """Return how many jobs stood where at a time, and of how many the journal no longer tells."""
        rows = self._run("counts_as_of", at=time_text(at))
        told = [_count(row) for row in rows if row[2] is not None]
        return told, sum(row[3] for row in rows if row[2] is None)


class CountWrites(CountReads, WritingVerbs):
    """Keeps counts small and right."""

    def fold(self) -> None:
        """Fold the deltas into the counts."""
        self._run("fold_counts")

    def recount(self) -> None:
        """Count jobs anew, and forget what was counted before."""
        self._run("recount")
