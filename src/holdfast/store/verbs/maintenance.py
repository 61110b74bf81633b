"""Verbs of maintenance: the door, which suspends the guards of the triggers, and the writes of a repair.

Invariants: the door is open only inside its block; writes while it is open are journalled with its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from holdfast.core.digest import Json, canonical
from holdfast.core.records import time_text
from holdfast.store.statements import OF_CALL, encoded
from holdfast.store.tables import Guarded
from holdfast.store.verbs.base import Verbs, WritingVerbs

CALLS, JOBS = "holdfast_calls", "holdfast_jobs"


class MaintenanceReads(Verbs):
    """Reads rows without checking their values."""

    def images(self, table: str, **where: object) -> list[dict[str, Any]]:
        """Return rows of a table of the ledger as stored, by column, without checks; times as text."""
        conditions = " AND ".join(f"{column} = :{column}" for column in where)
        columns, rows = self._store.named(
            self._session.connection, f"SELECT * FROM {table} WHERE {conditions} ORDER BY 1, 2", where
        )
        return [{name: _plain(value) for name, value in zip(columns, row, strict=True)} for row in rows]


class MaintenanceWrites(MaintenanceReads, WritingVerbs):
    """Opens the door, and writes while it is open."""

    @contextmanager
    def open(self, *, who: str, why: str, grant_id: int | None = None) -> Iterator[int]:
        """Open the maintenance door for a block and yield its id; writes inside are journalled with that id."""
        [[door]] = self._run("open_door", who=who, why=why, grant_id=grant_id, now=self._store.time_parameter())
        yield int(door)
        self._run("shut_door", maintenance_id=door)

    def note(self, door: int, event: str, **what: Json) -> None:
        """Journal a note about a change under an open door, such as the values before it."""
        self._run("note_maintenance", maintenance_id=door, event=event, note=canonical(what))

    def mend(self, guarded: Guarded, subject: int, columns: Mapping[str, object]) -> None:
        """Set columns of one record for a repair; needs an open door. A change of state is journalled."""
        sets = ", ".join(f"{column} = :{column}" for column in columns)
        sql = f"UPDATE {guarded.table} SET {sets} WHERE {guarded.id} = :subject"
        self._store.named(self._session.connection, sql, {**columns, "subject": subject})

    def put_back(self, table: str, columns: Mapping[str, object]) -> None:
        """Insert a lost row with its id; needs an open door. The journal is not changed."""
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})"
        self._store.named(self._session.connection, sql, columns)

    def forget(self, table: str, **which: object) -> None:
        """Delete rows of a table by their key; needs an open door. The caller must have stored their contents."""
        where = " AND ".join(f"{column} = :{column}" for column in which)
        self._store.named(self._session.connection, f"DELETE FROM {table} WHERE {where}", which)

    def write_job(self, job_id: int, columns: Mapping[str, object], *, was: int) -> None:
        """Write a job whole, with its call, where they are missing or differ; needs an open door.

        The row is deleted and inserted: an UPDATE that moves it would be journalled, and would end its attempt. The
        caller journals what it has changed. `was` is the id that the row has now.
        """
        of_call = {name: value for name, value in columns.items() if name in OF_CALL}
        if of_call and self.images(CALLS, job_id=job_id):
            sets = ", ".join(f"{column} = :{column}" for column in of_call)
            sql = f"UPDATE {CALLS} SET {sets} WHERE job_id = :job_id"
            self._store.named(self._session.connection, sql, {**of_call, "job_id": job_id})
        elif of_call:
            self.put_back(CALLS, {"job_id": job_id, **of_call})
        of_job = {name: value for name, value in columns.items() if name not in OF_CALL}
        before = self.images(JOBS, job_id=was)
        if before and (of_job or was != job_id):
            self.forget(JOBS, job_id=was)
            self._run("uncount_job", **{name: before[0][name] for name in ("operation", "queue", "state")})
            of_job = {**before[0], **of_job}
        if of_job:
            self.put_back(JOBS, {**of_job, "job_id": job_id})

    def record_repair(self, door: int, row: Mapping[str, object]) -> None:
        """Journal a repair; needs an open door."""
        self._run("tell_repair", **{"status_from": None, "status_to": None, "maintenance_id": door, **row})

    def forget_journal_rows(self, seqs: Sequence[int]) -> None:
        """Delete journal rows; needs an open door. The caller must have stored their contents."""
        self._run("forget_journal_rows", rows=encoded(sorted(seqs)))

    def lock_records(self) -> None:
        """Lock all records against other writers until this transaction ends; does nothing on SQLite."""
        self._run("lock_records")


def _plain(value: object) -> object:
    return time_text(value) if isinstance(value, datetime) else value
