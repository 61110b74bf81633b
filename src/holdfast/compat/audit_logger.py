"""The audit logger of G: transitions from the journal, and a hash-chained file for the other acts of operators.

Invariants: a transition has one record, the journal's: an event that only repeats it is not written; a transition that
a validator judged without a move is written as a judgement, and any other event about a transition that did not happen
is refused; a logged event is durable; each line of the file has the hash of the line before it, and the head file,
replaced as a whole before each line is written, contains the last line, so every edit, removal, insertion or reordering
is found, and a torn line is restored.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec

from holdfast.compat.audit_chain import FILE_BYTES_MAX, RETENTION, AuditChain, AuditReport
from holdfast.compat.jobs import find, require_aware
from holdfast.core.digest import canonical
from holdfast.core.errors import InputError, JobNotFoundError, RefusedError
from holdfast.core.journal import JournalRow
from holdfast.core.machine import Edge
from holdfast.core.machines import JobState
from holdfast.core.project import RULED_EDGES
from holdfast.store import Clock, Store
from holdfast.store.transaction import Reading

SOURCE = "state_machine"
STATUS = "validated"
ERROR_SUMMARY_MAX = 200
IN_JOURNAL = frozenset(
    {
        "job_enqueued",
        "job_started",
        "job_completed",
        "job_failed",
        "job_retry_scheduled",
        "job_quarantined",
        "job_cancelled",
        "state_transition",
    }
)
_NAMES = {
    JobState.RUNNING: "job_started",
    JobState.SUCCEEDED: "job_completed",
    JobState.FAILED: "job_failed",
    JobState.PENDING: "job_retry_scheduled",
    JobState.QUARANTINED: "job_quarantined",
}
_TRANSITION = re.compile(r"transition_([a-z]+)_to_([a-z]+)")
_HASH = re.compile(r"[0-9a-f]{8,128}")
_HASHES = ("sha256", "path_hash", "consent_token_hash")
_OWN_FIELDS = ("sha256", "redacted_path", "path_hash", "operator_action", "consent_token_hash")


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a job, or one act of an operator."""

    job_id: str
    source: str
    action: str
    status: str
    timestamp: datetime
    sha256: str | None = None
    redacted_path: str | None = None
    path_hash: str | None = None
    attempt: int | None = None
    operator_action: str | None = None
    consent_token_hash: str | None = None
    metadata: Mapping[str, object] = {}


class HasStore(Protocol):
    """A ledger, or a queue over one."""

    @property
    def store(self) -> Store[Any]:
        """The open store."""


class AuditLogger:
    """The audit trail of one ledger. Operators' own events go to hash-chained files in a directory."""

    def __init__(
        self,
        ledger: HasStore,
        directory: str | Path,
        *,
        clock: Clock | None = None,
        file_bytes_max: int = FILE_BYTES_MAX,
        retention: timedelta = RETENTION,
    ) -> None:
        self._ledger = ledger
        self._chain = AuditChain(
            Path(directory), clock or self._now, file_bytes_max=file_bytes_max, retention=retention
        )

    def log(self, event: AuditEvent, /) -> int | None:
        """Write an event durably and return its number; return None if it only repeats the journal.

        A transition that a validator judged without a move (source `state_machine`, status `validated`) is written as
        a judgement. Any other event about a transition that the journal does not have is a RefusedError.
        """
        fields = _checked(event)
        transition = _TRANSITION.fullmatch(event.action)
        own = event.source != SOURCE or any(fields[name] is not None for name in _OWN_FIELDS)
        if transition is None:
            return self._chain.append(fields) if own or event.action not in IN_JOURNAL else None
        happened = self._happened(event, transition)
        if not happened and (own or event.status != STATUS):
            raise _did_not_happen(event, transition)
        return self._chain.append(fields) if own or not happened else None

    record = log

    def events(self, job_id: str | int) -> list[AuditEvent]:
        """Return the events of a job, oldest first: its transitions from the journal, and the events logged for it.

        A text is the id of a job of IdempotentJobQueue, a number that of any job of the ledger.
        """
        logged = [msgspec.convert(fields, AuditEvent) for fields in self._chain.events_of(str(job_id))]
        with self._ledger.store.reading() as reading:
            journalled = [_of_journal(str(job_id), row) for row in _journal(reading, job_id)]
        return sorted([*journalled, *logged], key=lambda event: event.timestamp)

    def verify(self, known: tuple[int, str] | None = None) -> AuditReport:
        """Recompute the whole chain; the report is true if nothing was changed, and otherwise lists what and where.

        A `known` head, kept elsewhere, also finds a chain that was rewritten as a whole.
        """
        return self._chain.verify(known)

    def head(self) -> tuple[int, str]:
        """Return the number and the hash of the last event, to be kept elsewhere."""
        return self._chain.head()

    def _now(self) -> datetime:
        return self._ledger.store.now()  # looked up each time: a ledger may be bound to another database

    def _happened(self, event: AuditEvent, transition: re.Match[str]) -> bool:
        edge = Edge(transition[1], transition[2])
        with self._ledger.store.reading() as reading:
            return any(Edge(row.source, row.target) == edge for row in _journal(reading, event.job_id))


def _did_not_happen(event: AuditEvent, transition: re.Match[str]) -> RefusedError:
    return RefusedError(
        f"The journal of job {event.job_id} has no transition {transition[1]} → {transition[2]}",
        next_step="Log an operator's act under another action; transitions are recorded in the journal.",
        context={"job_id": event.job_id, "action": event.action},
    )


def _journal(reading: Reading, job_id: str | int) -> Iterator[JournalRow]:
    """Yield the journal of a job, if it has one."""
    try:
        number = job_id if isinstance(job_id, int) else find(reading, job_id).job_id
    except JobNotFoundError:
        return
    yield from reading.journal.of(number)


def _of_journal(job_id: str, row: JournalRow) -> AuditEvent:
    edge = Edge(row.source, row.target)
    is_new = row.source is None
    name = "job_enqueued" if is_new else "job_cancelled" if row.event == "cancel" else _NAMES[JobState(row.target)]
    return AuditEvent(
        job_id=job_id,
        source=SOURCE,
        action=name if is_new else f"transition_{row.source}_to_{row.target}",
        status=STATUS,
        timestamp=row.at,
        attempt=row.attempt,
        metadata={
            "from_status": row.source,
            "to_status": row.target,
            "operator": row.actor if edge in RULED_EDGES else None,
            "reason": row.reason,
            "event": name,
            "actor": row.actor,
        },
    )


def _checked(event: AuditEvent) -> dict[str, Any]:
    """Return an event as the JSON object that is kept, or raise an InputError."""
    fields = _written(event)
    for name in ("job_id", "source", "action", "status"):
        if not getattr(event, name):
            raise InputError(f"An audit event needs a {name}")
    require_aware("timestamp", event.timestamp)
    for name in _HASHES:
        value = getattr(event, name)
        if value is not None and not _HASH.fullmatch(value):
            raise InputError(
                f"{name} must be a hash in lower-case hex", next_step="Give the hash, not the value itself."
            )
    summary = fields["metadata"].get("error_summary")
    if isinstance(summary, str):
        fields["metadata"] = {**fields["metadata"], "error_summary": summary[:ERROR_SUMMARY_MAX]}
    canonical(fields)  # values that JSON cannot represent are refused before anything is written
    return fields


def _written(event: AuditEvent) -> dict[str, Any]:
    """Return the fields of an event, with their types checked: msgspec does not check them at construction."""
    try:
        fields: dict[str, Any] = msgspec.to_builtins(event)
        msgspec.convert(fields, AuditEvent)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"The audit event cannot be written as JSON: {error}", next_step="Give text, numbers, lists and mappings."
        ) from None
    return fields
