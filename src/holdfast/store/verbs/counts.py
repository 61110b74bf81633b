"""Verbs of counts: how many jobs are in each state, without counting the rows of jobs.

Invariants: a count is the sum of the folded count and of the deltas since; folding and recounting change no sum.
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
        raise unreadable(f"of counts for the state {state!r}")
    return Count(operation, queue, JobState(state), int(n))


class CountReads(Verbs):
    """Reads counts."""

    def current(self) -> list[Count]:
        """Return the number of jobs for each operation, queue and state."""
        return [_count(row) for row in self.raw()]

    def raw(self) -> list[tuple[str, str, str, int]]:
        """Return the counts as (operation, queue, state, n), without checking the states."""
        return [(operation, queue, state, int(n)) for operation, queue, state, n in self._run("read_counts")]

    def as_of(self, at: datetime) -> tuple[list[Count], int]:
        """Return the counts at a time, and the number of jobs whose history of that time is archived."""
        rows = self._run("counts_as_of", at=time_text(at))
        known = [_count(row) for row in rows if row[2] is not None]
        return known, sum(row[3] for row in rows if row[2] is None)


class CountWrites(CountReads, WritingVerbs):
    """Folds and recounts."""

    def fold(self) -> None:
        """Add the deltas to the counts, and delete them."""
        self._run("fold_counts")

    def recount(self) -> None:
        """Count all jobs again, and replace the counts and deltas."""
        self._run("recount")
