"""A record under examination: its row, its journal, and whether the two can be trusted.

Invariants: nothing is written here; a journal is trusted if it is sound and its last row has the move id of the record.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import chain, pairwise
from typing import Any

import msgspec

from holdfast.audit.check import record_rules
from holdfast.audit.check.context import RuleContext
from holdfast.core.digest import Json
from holdfast.core.machine import Machine
from holdfast.core.machines import JOB, JobState
from holdfast.core.records import time_from, time_text
from holdfast.store.statements import OF_CALL
from holdfast.store.tables import GUARDED
from holdfast.store.transaction import Reading
from holdfast.store.verbs.evidence import Evidence
from holdfast.store.verbs.histories import Entry, History

GUARDED_BY_NAME = {guarded.machine.name: guarded for guarded in GUARDED}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EVENT = "repair"
VERSION_MAX = 1 << 30  # Holdfast never writes a version so great that none can follow it


class RepairAct(msgspec.Struct, frozen=True, kw_only=True):
    """One change that a repair makes, with the row before it."""

    kind: str  # mend, move, tell, put_back, forget; and for the whole ledger: recount, rewrite, recover, sweep
    subject: str
    why: str
    machine: str | None = None
    id: int | None = None
    before: dict[str, Json] | None = None
    after: dict[str, Json] = {}
    steps: tuple[str | None, str | None] = (None, None)  # the status of the job's attempt before and after, if it moves


class ExaminedRecord:
    """One record, its journal, and whether the two can be trusted."""

    def __init__(self, reading: Reading, machine: Machine, subject: int) -> None:
        self.guarded, self.machine, self.id = GUARDED_BY_NAME[machine.name], machine, subject
        images = reading.maintenance.images(self.guarded.table, **{self.guarded.id: subject})
        self.image: dict[str, Any] | None = images[0] if images else None
        self.call_lost = False
        if machine is JOB and self.image is not None:
            calls = reading.maintenance.images("holdfast_calls", job_id=subject)
            self.call_lost = not calls
            self.image = {**(calls[0] if calls else dict.fromkeys(OF_CALL)), **self.image}
        evidence = Evidence(reading)
        self.rows, readable = evidence.journal_of(machine, subject)
        self.begins = begins = 1 if self.image is None else self.image["history_from"]
        self.kept = [row for row in self.rows if row.version >= begins]
        kept_payload = machine is JOB and self.image is not None and self.image["payload"] is not None
        # Missing, and not in an archive: a job is slimmed before its history is archived.
        lost = record_rules.lacks_rows(self.rows, begins) and (kept_payload or evidence.archived_until is None)
        self.archived = begins > 1 and not self.kept and not lost
        self.sound = self.archived or (
            readable and not lost and is_sound(machine, self.kept, begins, RuleContext(evidence, limit=1, batch=1))
        )

    @property
    def last(self) -> Entry | None:
        return self.kept[-1] if self.kept else None

    @property
    def vouched(self) -> bool:
        """Whether the record was last written by the last move in its journal: then the journal is trusted."""
        last = self.signed_by
        return self.sound and last is not None and self._signed(last)

    def _signed(self, row: Entry) -> bool:
        """Return whether a journal row is of the move that wrote the record last."""
        return self.image is not None and (self.image["event"], self.image["move_id"]) == (row.event, row.move_id)

    @property
    def signed_by(self) -> Entry | None:
        """The journal row of the last move."""
        return self.last

    @property
    def state(self) -> str:
        return "" if self.image is None else str(self.image[self.guarded.state])

    @property
    def base(self) -> int:
        """The version before the next move: the journal's last one, if it has rows."""
        if self.rows:
            return max(row.version for row in self.rows)
        return 1 if self.image is None else int(self.image["version"])

    def act(self, kind: str, why: str, **after: Json) -> RepairAct:
        words = {name: value.value if isinstance(value, Enum) else value for name, value in after.items()}
        return RepairAct(
            kind=kind,
            subject=f"{self.machine.name} {self.id}",
            why=why,
            machine=self.machine.name,
            id=self.id,
            before=self.image,
            after=words,
        )

    def put(self, state: str, why: str, *, restart: bool = False, **columns: Json) -> Iterator[RepairAct]:
        """Yield the acts that bring the record to a state and its journal's version; `restart` restarts its history."""
        if self.image is None:
            return
        if self.image["version"] != self.base:
            # All columns at once: a row that breaks a constraint can be updated only to one that does not.
            yield self.act("mend", f"the journal ends at version {self.base}", version=self.base, **columns)
        history = {"history_from": self.base + 1} if restart else {}
        if state != self.state:
            yield self.act("move", why, **{self.guarded.state: state}, **history, **columns)
        elif restart or (self.last is not None and self.last.target != state):
            yield self.act("tell", why, **{self.guarded.state: state}, **history, **columns)
        elif changed := {name: value for name, value in columns.items() if self.image[name] != value}:
            yield self.act("mend", why, **changed)


def is_sound(machine: Machine, rows: Sequence[Entry], begins: int, context: RuleContext) -> bool:
    """Return whether rows are a complete history by the rules of `check`, for a record in their last state."""
    if not rows:
        return False
    history = History(
        machine=machine, subject=rows[0].subject, state=rows[-1].target, version=rows[-1].version, history_from=begins,
        created_at=rows[0].at, updated_at=rows[-1].at, rows=tuple(rows),
    )  # fmt: skip
    found = chain(record_rules.continuous(history, context), record_rules.legal(history, context))
    faults = (
        fault for fault in found if fault.evidence["kind"] != "taken"
    )  # missing rows before these are judged elsewhere
    return next(faults, None) is None and rows[-1].target in machine.states and _counts_up(machine, rows)


def _counts_up(machine: Machine, rows: Sequence[Entry]) -> bool:
    """Return whether the attempts in a job's rows increase by one with each claim, and only then."""
    return machine is not JOB or all(
        row.maintenance_id is not None or (row.attempt or 0) == (before.attempt or 0) + (row.target == JobState.RUNNING)
        for before, row in pairwise(rows)
    )


def is_torn(row: dict[str, Any]) -> bool:
    """Return whether a journal row holds values that Holdfast never writes, so that it cannot be used."""
    words = (row["target"], row["event"], row["move_id"])
    numbers = [row[name] or 0 for name in ("attempt", "grant_id", "maintenance_id")]
    return (
        time_or_none(row["at"]) is None
        or not all(isinstance(word, str) for word in words)
        or not all(isinstance(number, int) for number in (row["version"], *numbers))
        or not 0 < row["version"] < VERSION_MAX
    )


def repair_move_id(machine: str, subject: int, version: int) -> str:
    """Return the id of the move by which a repair brings a record to a version; a plan and its repair have the same."""
    return f"{EVENT}-{machine}-{subject}-{version}"


def time_or_none(text: object) -> datetime | None:
    """Return the time that a text holds, or None."""
    try:
        moment = time_from(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None  # a time without a zone is not valid


def written_at(row: Entry) -> str | None:
    """Return when a journal row was written, or None if its time cannot be read."""
    at: Any = row.at  # None where the journal does not hold a time
    return time_text(at) if at else None


def record_times(record: ExaminedRecord) -> dict[str, Json]:
    """Return when a record was created and last changed, taken from its journal if it has these times."""
    image, first, last = record.image or {}, record.rows[0] if record.rows else None, record.last
    created, updated = time_or_none(image["created_at"]), time_or_none(image["updated_at"])
    if first is not None and first.version == 1 and written_at(first):
        created = first.at
    latest = [
        moment for moment in (created, updated, last.at if last and written_at(last) else None) if moment is not None
    ]
    return {"created_at": time_text(created or EPOCH), "updated_at": time_text(max(latest, default=EPOCH))}
