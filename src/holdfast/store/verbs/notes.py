"""Verbs of notes on a running attempt: its progress, its checkpoints, and a request to cancel it.

Invariants: progress and checkpoints are written only under a live lease; a request to cancel is made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.records import Attempt, Execution
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs, WritingVerbs


class NoteReads(Verbs):
    """Reads checkpoints."""

    def checkpoints(self, job_id: int) -> dict[str, str]:
        """Return the checkpoints of a job, as JSON text by name."""
        return dict(self._run("checkpoints_of", job_id=job_id))


class NoteWrites(NoteReads, WritingVerbs):
    """Notes progress, checkpoints and requests to cancel."""

    def save_progress(self, notes: Sequence[tuple[Execution, float, str | None]]) -> set[int]:
        """Store progress, given as (execution, fraction, note); return the ids of the executions still held."""
        rows: list[list[object]] = [[e.job_id, e.lease_token, e.lease_owner, *note] for e, *note in notes]
        return self._write("note_progress", rows, now=self._store.time_parameter())

    def save_checkpoints(self, attempt: Attempt, values: Mapping[str, str]) -> bool:
        """Store checkpoints for later attempts; return False if the lease is lost."""
        return self.save_all_checkpoints([(attempt, values)]) == len(values)

    def save_all_checkpoints(self, kept: Sequence[tuple[Attempt, Mapping[str, str]]]) -> int:
        """Store the checkpoints of several attempts; return how many were stored: none of a lost lease."""
        rows = [
            (attempt.job_id, attempt.token, attempt.owner, name, value)
            for attempt, values in kept
            for name, value in sorted(values.items())
        ]
        return len(self._run("keep_checkpoints", rows=encoded(rows), now=self._store.time_parameter()))

    def request_cancel(self, job_id: int, *, actor: str, reason: str | None = None) -> bool:
        """Request that the execution that holds a job stops; return whether there is one."""
        return bool(self._run("ask_cancel", job_id=job_id, **self._signature(actor, reason)))
