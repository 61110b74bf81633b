"""Verbs of the journal: the history of a record, as the database wrote it.

Invariants: these verbs only read; rows are returned oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.core.machines import JOB
from holdfast.core.records import JournalRow
from holdfast.store.rows import reader
from holdfast.store.verbs.base import Verbs

_read_journal_row = reader(JournalRow)


class JournalReads(Verbs):
    """Reads histories."""

    def of(self, subject: int, machine: str = JOB.name) -> list[JournalRow]:
        """Return the history of one record, oldest first."""
        return [self._journal_row(row) for row in self._run("journal_of", machine=machine, subject=subject)]

    def of_executions(self, job_id: int) -> list[JournalRow]:
        """Return the history of all executions of a job."""
        return [self._journal_row(row) for row in self._run("journal_of_executions", job_id=job_id)]

    def complete_since(self) -> datetime | None:
        """Return the time from which on the journal has the history of every job; None if no history was archived."""
        [[moment]] = self._run("told_from")
        return None if moment is None else self._store.moment(moment)

    def first_versions(self, job_id: int) -> dict[tuple[str, int], int]:
        """Return the first version in the journal of a job and of its executions, by machine and id."""
        return {(machine, subject): first for machine, subject, first in self._run("histories_of", job_id=job_id)}

    def _journal_row(self, row: Sequence[Any]) -> JournalRow:
        return _read_journal_row(row, datetime.fromisoformat)  # text on both databases, because it is hashed
