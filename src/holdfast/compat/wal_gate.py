"""Lets one recovery of a log run at a time, and refuses appends and cleanups meanwhile.

A recovery holds the lease `wal:<name>` of the ledger. Each append and each batch of a cleanup requires, in the
transaction that writes it, that no recovery holds this lease.

Invariants: no entry is appended to a log while a recovery of it holds its lease, by any process; a recovery whose
process crashes keeps others out no longer than its lease lasts; after an interrupted recovery the object accepts no
append or cleanup until a recovery has finished.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import WalRecoveringError
from holdfast.engine.submit import prepare
from holdfast.engine.tasks import CallTask

if TYPE_CHECKING:
    from holdfast.core.governed import NamedLease
    from holdfast.engine.events import Transition
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.operations import Call
    from holdfast.store import Store, Transaction
    from holdfast.store.transaction import Reading

# PostgreSQL: an append that has looked for the lease and not yet committed keeps a recovery from taking it. The row of
# the lease cannot be locked instead, because it may not exist. On SQLite one transaction writes at a time.
_KEY = "pg_catalog.hashtextextended('holdfast ' || current_schema() || ' ' || :queue, 0)"
_SHARED = f"SELECT pg_catalog.pg_advisory_xact_lock_shared({_KEY})"
_ALONE = f"SELECT pg_catalog.pg_advisory_xact_lock({_KEY})"


def require_no_recovery(transaction: Transaction, queue: str) -> None:
    """Raise WalRecoveringError if a recovery of this log is running; none begins before this transaction ends."""
    store = transaction.store
    if not store.one_writer:
        transaction.query(_SHARED, {"queue": queue})
    lease = recovery_of(transaction, queue)
    if lease is not None:
        raise refusal(queue, lease)


def recovery_of(reading: Reading, queue: str) -> NamedLease | None:
    """Return the lease of the recovery of a log that is running, if there is one."""
    lease = reading.leases.all().get(queue)
    return lease if lease is not None and lease.expires_at > reading.store.now() else None


def refusal(queue: str, lease: NamedLease | None = None) -> WalRecoveringError:
    """Return the error for a log that is being recovered, by this object or by the holder of the lease."""
    name = queue.partition(":")[2]
    if lease is None:
        return WalRecoveringError(f"Log {name} is being recovered", context={"wal": name})
    until = lease.expires_at.isoformat()
    return WalRecoveringError(
        f"Log {name} is being recovered by {lease.holder}, whose lease lasts until {until} or is extended",
        next_step="Try again when that recovery has ended, or its lease has expired.",
        context={"wal": name, "holder": lease.holder, "until": until},
    )


class AppendTask(CallTask):
    """An append: it is written only if no recovery of its log is running."""

    def __init__(self, ledger: Ledger, queue: str, call: Call) -> None:
        super().__init__(self._append, ("during_submit", "after_submit"))
        self.repeatable = call.key is not None
        self._ledger, self._queue, self._call = ledger, queue, call

    def _append(self, transaction: Transaction) -> object:
        require_no_recovery(transaction, self._queue)
        [admission] = self._ledger.submit_in(transaction, [self._call])
        return admission

    def events(self, at: datetime) -> Iterator[Transition]:
        from holdfast.engine.events import of_submissions  # noqa: PLC0415 - only in a process with a subscriber

        return of_submissions([prepare(self._call, self._ledger.known)], [self.result()], at)


class RecoveryLease:
    """The exclusive right of one object to recover one log, for a limited time."""

    def __init__(self, queue: str, holder: str, seconds: float, monotonic: Callable[[], float]) -> None:
        self._queue, self._holder, self._seconds, self._monotonic = queue, holder, seconds, monotonic
        self._token: int | None = None
        self._extended = 0.0

    @property
    def fresh(self) -> bool:
        """Whether it is held, and less than half of its time has passed."""
        return self._token is not None and self._monotonic() - self._extended < self._seconds / 2

    def acquire(self, store: Store[Any]) -> NamedLease | None:
        """Take the lease, or extend it; return None, or the lease of another holder."""
        began = self._monotonic()
        with store.transaction() as transaction:
            if not store.one_writer:
                transaction.query(_ALONE, {"queue": self._queue})
            self._token = transaction.leases.acquire(self._queue, self._holder, self._seconds)
            if self._token is None:
                return transaction.leases.all()[self._queue]
        self._extended = began
        return None

    def extend(self, transaction: Transaction) -> None:
        """Extend the lease if it is held."""
        began = self._monotonic()
        if self._token is not None and transaction.leases.extend(self._queue, self._holder, self._token, self._seconds):
            self._extended = began

    def release(self, transaction: Transaction) -> None:
        """Give the lease back, if it is held."""
        if self._token is not None:
            transaction.leases.release(self._queue, self._holder, self._token)
            self._token = None


class Gate:
    """Admits the appends and cleanups of one object, or its recovery, but never both."""

    def __init__(self, queue: str) -> None:
        self.shut = False  # from the start of a recovery until one has finished
        self._queue = queue
        self._recovering = False
        self._inside = 0
        self._changed = threading.Condition()

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Keep a recovery from starting during the block; raise WalRecoveringError if one has started."""
        with self._changed:
            if self.shut:
                raise refusal(self._queue)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def recovery(self, take: Callable[[], None]) -> Iterator[None]:
        """Wait for running appends and cleanups, and refuse new ones until the block has ended without an error.

        `take` takes the lease of the log; if that fails, no recovery has begun, and the gate is as it was.
        """
        with self._changed:
            if self._recovering:
                raise refusal(self._queue)
            shut, self.shut, self._recovering = self.shut, True, True
            self._changed.wait_for(lambda: self._inside == 0)
        try:
            try:
                take()
            except BaseException:
                self.shut = shut
                raise
            yield
            self.shut = False
        finally:
            self._recovering = False
