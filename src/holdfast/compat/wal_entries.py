"""What the write-ahead log of W holds: entries, their keys, and what takes effect when one is completed.

Invariants: an entry is one job, seen through `ENTRY_STATUS`; its bytes come back exactly as they were given; what
cannot be taken is a typed error before anything is written.
"""

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.core.digest import Json
from holdfast.core.errors import InputError, ResultExpiredError
from holdfast.core.machines import ENTRY_STATUS, EntryStatus
from holdfast.core.records import Job
from holdfast.engine.operations import Call
from holdfast.store.effects import Effect, Params, staged

QUEUE_PREFIX, OPERATION_PREFIX = "wal:", "wal."
"""How the queue and the operations of a log begin. The queue is always paused: no worker takes entries."""

KEY_MAX = (1 << 64) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")

Key = int | str
Data = bytes | bytearray | memoryview


def log_of(job: Job) -> str | None:
    """Return the name of the log that a job is an entry of; None if it is none."""
    is_entry = job.queue.startswith(QUEUE_PREFIX) and job.operation.startswith(OPERATION_PREFIX)
    return job.queue.removeprefix(QUEUE_PREFIX) if is_entry else None


class WalOperation(StrEnum):
    """What an entry is about to do."""

    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    SEND_MESSAGE = "SendMessage"


class WalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as it was read: a snapshot, not a handle."""

    id: int
    client: str
    operation: WalOperation
    idempotency_key: Key | None
    status: EntryStatus
    created_at_ms: int
    completed_at_ms: int | None  # when it was completed or failed
    attempts: int
    error: str | None
    result_expired: bool  # cleanup has dropped the data and the result; the key stays taken
    stored_data: bytes | None
    stored_result: str | None

    @property
    def data(self) -> bytes:
        """The bytes that were appended; ResultExpiredError once cleanup has dropped them."""
        self._require_kept()
        return self.stored_data or b""

    @property
    def result(self) -> Json:
        """The result that was stored when it was completed; ResultExpiredError once cleanup has dropped it."""
        self._require_kept()
        return None if self.stored_result is None else json.loads(self.stored_result)

    def _require_kept(self) -> None:
        if self.result_expired:
            raise ResultExpiredError(
                f"entry {self.id} is {self.status}, and its data and result have been dropped",
                context={"entry": self.id, "status": str(self.status)},
            )


class Boundary:
    """What an entry's `apply` leaves to happen in the one transaction that completes the entry."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.calls: list[Call] = []

    def effect(self, sql: str, params: Params | None = None, *, rows: int | None = None) -> None:
        """Stage a statement in the ledger's own database, applied exactly once."""
        self.effects.append(staged(sql, params, rows))

    def after_commit(self, call: Call) -> None:
        """Stage a call that becomes a job of its own: for what must happen elsewhere."""
        self.calls.append(call)


Apply = Callable[[WalEntry, Boundary], Json]


def require_client(client: object) -> None:
    """Raise an InputError for what cannot name a client."""
    if not isinstance(client, str) or not client:
        raise InputError("a client is a text that is not empty")


def payload_of(data: Data) -> dict[str, Json]:
    """Return bytes as the payload that carries them exactly, or raise an InputError."""
    if not isinstance(data, Data):
        raise InputError(f"data is bytes, not {type(data).__name__}", next_step="Encode it: text.encode().")
    return {"data": base64.b64encode(data).decode()}


def operation_of(operation: str) -> WalOperation:
    """Return the operation of this name, or raise an InputError."""
    try:
        return WalOperation(operation)
    except ValueError:
        known = ", ".join(WalOperation)
        raise InputError(f"{operation!r} is not one of {known}") from None


def key_text(key: Key) -> str:
    """Return a key as the ledger keeps it, or raise an InputError. A number and its digits are the same key."""
    if isinstance(key, str) and key:
        return key
    if isinstance(key, int) and not isinstance(key, bool) and 0 <= key <= KEY_MAX:
        return str(key)
    raise InputError(
        f"{key!r} is not an idempotency key", next_step="Give a number from 0 to 2^64 - 1, or a text that is not empty."
    )


def _key(text: str | None) -> Key | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) and int(text) <= KEY_MAX else text


def entry_of(job: Job) -> WalEntry:
    """Return a job of a log as the entry that it is."""
    status = ENTRY_STATUS[job.state]
    return WalEntry(
        id=job.job_id,
        client=job.client,
        operation=WalOperation(job.operation.rpartition(".")[2]),
        idempotency_key=_key(job.key),
        status=status,
        created_at_ms=milliseconds(job.created_at),
        completed_at_ms=None if status is EntryStatus.PENDING else milliseconds(job.updated_at),
        attempts=job.attempts,
        error=None if status is EntryStatus.COMPLETED else job.last_error_message,
        result_expired=job.slimmed,
        stored_data=None if job.payload is None else base64.b64decode(json.loads(job.payload)["data"], validate=True),
        stored_result=job.result,
    )


def milliseconds(moment: datetime) -> int:
    """Return a time as milliseconds since 1970."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def cutoff_of(older_than: datetime | timedelta | int, now: datetime) -> datetime:
    """Return the time before which an entry is old: given itself, as an age, or as milliseconds since 1970."""
    try:
        if isinstance(older_than, timedelta) and older_than >= timedelta(0):
            return now - older_than
        if isinstance(older_than, int) and not isinstance(older_than, bool) and older_than >= 0:
            return _EPOCH + timedelta(milliseconds=older_than)
        if isinstance(older_than, datetime) and older_than.tzinfo is not None:
            return older_than
    except OverflowError:
        pass
    raise InputError(
        f"{older_than!r} is no age and no time to clean up before",
        next_step="Give a timedelta, an aware datetime, or milliseconds since 1970.",
    )
