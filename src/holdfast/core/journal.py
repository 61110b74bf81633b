"""The journal as records: its rows, and the rulings that a job's history contains.

Invariants: as those of `core.records`: a record is one row as it was read, and times are aware, in UTC.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.machines import JobState


class Ruling(msgspec.Struct, frozen=True):
    """A move of a job that no execution made: its event, its target state, and the attempts before it."""

    event: str
    target: JobState
    attempt: int


class JournalRow(msgspec.Struct, frozen=True):
    """One edge that one record took, as the database recorded it."""

    seq: int
    machine: str
    subject: int
    version: int
    source: str | None
    target: str
    event: str
    actor: str
    reason: str | None
    attempt: int | None
    move_id: str
    grant_id: int | None
    maintenance_id: int | None
    at: datetime
