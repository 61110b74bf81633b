"""Verbs of the journal: the history of a record, as the database wrote it.

Invariants: these verbs only read; rows are returned oldest first.
"""

from __future__ import annotations

from datetime import datetime

from holdfast.core.journal import JournalRow
from holdfast.core.machines import EXEC_IDS, EXECUTION, JOB
from holdfast.store.rows import reader
from holdfast.store.verbs.base import Verbs

_read_journal_row = reader(JournalRow)


class JournalReads(Verbs):
    """Reads histories."""

    def of(self, subject: int, machine: str = JOB.name) -> list[JournalRow]:
        """Return the history of one record, oldest first."""
        # The rows of a job also tell what its attempts did; a start or a commit alone has a row of its own.
        record = subject // EXEC_IDS if machine == EXECUTION.name else subject
        return self._all(_read_journal_row, "journal_of", machine=machine, subject=subject, record=record)

    def of_executions(self, job_id: int) -> list[JournalRow]:
        """Return the history of all executions of a job."""
        # By each id: in a ledger with millions of jobs, a range of them would contain the rows of other jobs.
        attempts = self._session.lists.executions(job_id)
        rows = [row for attempt in attempts for row in self.of(attempt.exec_id, EXECUTION.name)]
        return sorted(rows, key=lambda row: row.seq)

    def complete_since(self) -> datetime | None:
        """Return the time from which on the journal has the history of every job; None if no history was archived."""
        [[moment]] = self._run("known_from")
        return None if moment is None else self._store.moment(moment)

    def kept(self, job_id: int) -> tuple[int, list[JournalRow]]:
        """Return the first version of a job that the journal has, and all edges of the job and its attempts in order.

        Archived rows that are still in the journal are left out.
        """
        [[first]] = self._run("history_begins", job_id=job_id)
        return first, self._all(_read_journal_row, "kept_history", job_id=job_id, first=first)
