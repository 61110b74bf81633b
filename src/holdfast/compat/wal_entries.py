"""The entries of the write-ahead log of W, their keys, and what their completion writes.

Invariants: an entry is one job, with the status of `ENTRY_STATUS`; its bytes are returned exactly as given; invalid
input raises a typed error before anything is written.
"""

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.core.digest import Json
from holdfast.core.entries import ENTRY_STATUS, EntryStatus
from holdfast.core.errors import InputError, ResultExpiredError
from holdfast.core.records import Job
from holdfast.engine.operations import Call
from holdfast.store.effects import Effect, Params, staged

KEY_MAX = (1 << 64) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")

Key = int | str
Data = bytes | bytearray | memoryview


class WalOperation(StrEnum):
    """The operation of an entry."""

    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    SEND_MESSAGE = "SendMessage"


class WalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as it was when it was read."""

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
        """The bytes that were appended; raises ResultExpiredError after a cleanup dropped them."""
        self._require_kept()
        return self.stored_data or b""

    @property
    def result(self) -> Json:
        """The result that was stored at completion; raises ResultExpiredError after a cleanup dropped it."""
        self._require_kept()
        return None if self.stored_result is None else json.loads(self.stored_result)

    def _require_kept(self) -> None:
        if self.result_expired:
            raise ResultExpiredError(
                f"Entry {self.id} is {self.status}; a cleanup dropped its data and result",
                context={"entry": self.id, "status": str(self.status)},
            )


class Boundary:
    """Collects what an entry's `apply` stages for the transaction that completes the entry."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.calls: list[Call] = []

    def effect(self, sql: str, params: Params | None = None, *, rows: int | None = None) -> None:
        """Stage a statement in the ledger's own database, applied exactly once."""
        self.effects.append(staged(sql, params, rows))

    def after_commit(self, call: Call) -> None:
        """Stage a call that becomes a separate job, for effects outside this database."""
        self.calls.append(call)


Apply = Callable[[WalEntry, Boundary], Json]


def require_client(client: object) -> None:
    """Raise an InputError unless the client is a text that is not empty."""
    if not isinstance(client, str) or not client:
        raise InputError(f"The client must be a text that is not empty, not {client!r}")


def payload_of(data: Data) -> dict[str, Json]:
    """Return bytes as the payload that carries them exactly, or raise an InputError."""
    if not isinstance(data, Data):
        raise InputError(f"The data must be bytes, not {type(data).__name__}", next_step="Encode it: text.encode().")
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
    status = ENTRY_STATUS[job.state]
    return WalEntry(
        id=job.job_id,
        client=job.client,
        operation=WalOperation(job.operation.rpartition(".")[2]),
        idempotency_key=_key(job.key),
        status=status,
        created_at_ms=milliseconds(job.created_at),
        completed_at_ms=None if status is EntryStatus.PENDING else milliseconds(job.updated_at),
        attempts=job.spent,  # without the excused ones
        error=None if status is EntryStatus.COMPLETED else job.last_error_message,
        result_expired=job.slimmed,
        stored_data=None if job.payload is None else base64.b64decode(json.loads(job.payload)["data"], validate=True),
        stored_result=job.result,
    )


def milliseconds(moment: datetime) -> int:
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
        f"{older_than!r} is not a valid age or time",
        next_step="Give a timedelta, an aware datetime, or milliseconds since 1970.",
    )
