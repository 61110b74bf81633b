"""The write-ahead log of W, over the ledger: an entry is one job, logged before it is carried out.

Invariants: an appended entry is durable; one (client, key) pair is one entry for ever; an entry and its effects commit
in one transaction; a claim is durable before `apply` is called, so an entry that kills its process uses an attempt and
ends Failed; recovery handles every entry, in the order of ids; while it holds the lease of its log, no process appends
to the log or cleans it up.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.compat import wal_entries
from holdfast.compat.wal_entries import Apply, Boundary, Data, Key, WalEntry
from holdfast.compat.wal_gate import AppendTask, Gate, RecoveryLease, recovery_of, refusal, require_no_recovery
from holdfast.compat.wal_moves import ENDED, PENDING, Busy, EntryMover
from holdfast.core.commands import Fail, GiveBack
from holdfast.core.digest import Json, payload_text
from holdfast.core.entries import EntryStatus
from holdfast.core.errors import InputError, InvalidStateTransitionError, StateTransitionRaceError, StoreError
from holdfast.core.records import Attempt, Job
from holdfast.core.redaction import redacted
from holdfast.engine.error_texts import error_code, error_message
from holdfast.engine.operations import Call
from holdfast.engine.worker.signals import Cancel, Quarantine, Snooze
from holdfast.store import Admission
from holdfast.store.effects import Effect, staged

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.store.transaction import Reading

LEASE_S = 2.0
MAX_ATTEMPTS = 5
RETENTION = timedelta(hours=24)
PENDING_WARN = 1000
COUNT_EVERY = 100  # appends from one look at the number of pending entries to the next
CLEANUP_BATCH = 1000
WAIT_S = 0.02
FAILED_CODE = "wal_failed"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

logger = logging.getLogger(__name__)


class WalRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of the entries that a recovery completed and failed, each in ascending order."""

    completed: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()


class Wal(EntryMover):
    """A log of operations that are recorded before they are carried out. Each object is a separate worker."""

    def __init__(
        self, ledger: Ledger, *, name: str = "main", lease_s: float = LEASE_S, max_attempts: int = MAX_ATTEMPTS
    ) -> None:
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} is not a valid name of a log", next_step="Use letters, digits, _ and -.")
        if not lease_s > 0 or max_attempts < 1:
            raise InputError(
                f"lease_s must be more than 0 and max_attempts at least 1, not {lease_s} and {max_attempts}"
            )
        super().__init__(ledger, name, lease_s, max_attempts)
        self._gate = Gate(self.queue)
        self._right = RecoveryLease(self.queue, self.worker, lease_s, ledger.world.monotonic)
        self._appended = 0
        self._warned = False

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(self, client: str, operation: str, data: Data) -> int:
        """Log an operation before it is carried out, and return its entry's id; durable when it returns."""
        entry_id, _ = self._append(client, None, operation, data)
        return entry_id

    def append_with_idempotency(self, client: str, key: Key, operation: str, data: Data) -> tuple[int, bool]:
        """Log an operation once for each (client, key); return its entry's id, and whether it is new.

        The same key with another operation or other data raises IdempotencyConflictError. An entry that is not new may
        have ended: `get` returns its status, and its result unless that has expired.
        """
        return self._append(client, wal_entries.key_text(key), operation, data)

    def _append(self, client: str, key: str | None, operation: str, data: Data) -> tuple[int, bool]:
        wal_entries.require_client(client)
        name, payload = self._operation(wal_entries.operation_of(operation)), wal_entries.payload_of(data)
        with self._gate.passing():
            self._store()
            call = Call(operation=name, payload=payload, client=client, key=key)
            task = AppendTask(self._ledger, self.queue, call)
            self._ledger.perform_tasks([task])
        admission: Admission = task.result()
        if admission.is_new:
            self._appended += 1
            if self._appended % COUNT_EVERY == 0:
                self._count_or_log()
        return admission.job_id, admission.is_new

    def _count_or_log(self) -> None:
        """Check the number of pending entries; the append is durable, so a failure here is only logged."""
        try:
            self.pending_count()
        except StoreError as error:
            logger.warning("Could not count the pending entries of log %s: %s", self.name, error)

    # -- ending -------------------------------------------------------------------------------------------------------

    def complete(self, entry_id: int, result: Json = None, *, effects: Sequence[Effect] = ()) -> WalEntry:
        """Complete an entry together with its effects; a completed entry stays unchanged."""
        checked = [staged(effect.sql, effect.params, effect.rows) for effect in effects]
        return _ended_as(EntryStatus.COMPLETED, entry_id, self._completed(entry_id, payload_text(result), checked))

    def fail(self, entry_id: int, reason: str) -> WalEntry:
        """End an entry as failed, without effects; a failed entry stays unchanged."""
        why = redacted(str(reason))
        outcome = self._failed(entry_id, lambda token: Fail(token, FAILED_CODE, why, permanent=True))
        return _ended_as(EntryStatus.FAILED, entry_id, outcome)

    def execute(self, entry_id: int, apply: Apply) -> WalEntry:
        """Call `apply` for an entry: complete it with the staged effects, or fail it if `apply` raises.

        An entry that has ended stays unchanged. If the database is unreachable or `apply` raises Snooze, the entry
        stays pending and no attempt is counted.
        """
        with self._beating():
            while True:
                held = self._begun(entry_id)
                if isinstance(held, Attempt):
                    held = self._tried(held, apply, final=True)
                elif isinstance(held, Busy):
                    raise _unavailable(entry_id, held)
                if held.state in ENDED:
                    return wal_entries.entry_of(held)

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, entry_id: int) -> WalEntry:
        """Return an entry, or raise JobNotFoundError."""
        with self._store().reading() as reading:
            return wal_entries.entry_of(self._job(reading, entry_id))

    def find_by_idempotency_key(self, client: str, key: Key) -> WalEntry | None:
        """Return the entry that a client appended under a key, if there is one."""
        wal_entries.require_client(client)
        pair = client, wal_entries.key_text(key)
        with self._store().reading() as reading:
            job = reading.jobs.by_key([pair]).get(pair)
        return wal_entries.entry_of(job) if job is not None and job.queue == self.queue else None

    def pending_entries(self) -> list[WalEntry]:
        """Return the entries that have not ended, in the order of their ids."""
        with self._store().reading() as reading:
            return [wal_entries.entry_of(job) for job in reading.jobs.get_many(self._pending_ids(reading))]

    def pending_count(self) -> int:
        """Return how many entries have not ended; log a warning when the number reaches a thousand."""
        self._store()
        counts = self._ledger.counts()
        pending = sum(count.n for count in counts if count.queue == self.queue and count.state in PENDING)
        if pending >= PENDING_WARN and not self._warned:
            logger.warning("Log %s has %d pending entries", self.name, pending, extra={"wal": self.name})
        self._warned = pending >= PENDING_WARN
        return pending

    @property
    def recovering(self) -> bool:
        """Whether a recovery of this object is running, or was interrupted and must be run again."""
        return self._gate.shut

    def _pending_ids(self, reading: Reading) -> list[int]:
        # Each part repeats the condition of a partial index: without it SQLite would read the whole table.
        _, rows = reading.query(
            "SELECT job_id FROM holdfast_jobs WHERE due_at IS NOT NULL AND parked IS NULL AND queue = :queue"
            " UNION ALL SELECT job_id FROM holdfast_jobs WHERE parked IS NOT NULL AND queue = :queue"
            " UNION ALL SELECT job_id FROM holdfast_jobs WHERE resting = 'failed' AND queue = :queue"
            " UNION ALL SELECT job_id FROM holdfast_jobs WHERE lease_expires_at IS NOT NULL AND queue = :queue"
            " ORDER BY 1",
            {"queue": self.queue},
        )
        return [entry_id for (entry_id,) in rows]

    # -- recovering and cleaning up -----------------------------------------------------------------------------------

    def recover(self, apply: Apply, *, wait_s: float | None = None) -> WalRecovery:
        """End every entry that is pending now, oldest first: completed with what `apply` stages, or failed.

        Until it has ended, the log accepts no append, no cleanup and no other recovery, from any process; a recovery
        whose process crashed blocks them for `lease_s` at most. If `apply` raises, the entry is tried again until its
        attempts are used up, and then fails. If another recovery runs, or another worker holds an entry, this waits up
        to `wait_s` (for ever by default; not at all on a virtual clock) and then raises WalRecoveringError or
        StateTransitionRaceError. After an interrupted recovery this object refuses appends until one has finished.
        """
        ended: dict[int, EntryStatus] = {}
        with self._gate.recovery(lambda: self._exclude(wait_s)), self._beating(self._right):
            try:
                left = self._pending()
                mark = max(left, default=0)
                while left:
                    for entry_id in left:
                        self._exclude(wait_s)
                        ended[entry_id] = self._replayed(entry_id, apply, wait_s).status
                    left = [entry_id for entry_id in self._pending() if entry_id <= mark]
            except Exception:
                self._release()
                raise
            self._ledger.perform(lambda transaction: transaction.counts.fold())
            self._release()
        by_status = {status: tuple(n for n in sorted(ended) if ended[n] is status) for status in EntryStatus}
        return WalRecovery(completed=by_status[EntryStatus.COMPLETED], failed=by_status[EntryStatus.FAILED])

    def _pending(self) -> list[int]:
        with self._store().reading() as reading:
            return self._pending_ids(reading)

    def _exclude(self, wait_s: float | None) -> None:
        """Hold the lease of recovery for at least half of its length from now, or raise WalRecoveringError."""
        if self._right.fresh:
            return
        store, deadline = self._store(), None if wait_s is None else time.monotonic() + wait_s
        while (other := self._right.acquire(store)) is not None:
            if self._ledger.world.clock is not None or (deadline is not None and time.monotonic() >= deadline):
                raise refusal(self.queue, other)
            time.sleep(WAIT_S)

    def _release(self) -> None:
        try:
            with self._store().transaction() as transaction:
                self._right.release(transaction)
        except StoreError as error:
            logger.warning("Could not end the recovery of log %s; its lease still has to expire: %s", self.name, error)

    def cleanup(self, older_than: datetime | timedelta | int = RETENTION) -> int:
        """Drop the data and results of entries that ended before a time; return the number of those entries.

        `older_than` is a time, an age, or milliseconds since 1970. Pending entries are never changed. The entry and its
        key stay: a late retry finds the entry, with an expired result.
        """
        with self._gate.passing():
            store = self._store()
            cutoff, last, dropped = wal_entries.cutoff_of(older_than, store.now()), 0, 0
            while True:
                with store.reading() as reading:
                    lease = recovery_of(reading, self.queue)
                    if lease is not None:
                        raise refusal(self.queue, lease)
                    old = reading.retention.slimmable(
                        before=cutoff, states=ENDED, queue=self.queue, after=last, limit=CLEANUP_BATCH
                    )
                if not old:
                    return dropped
                last = old[-1]
                with store.transaction() as transaction:
                    require_no_recovery(transaction, self.queue)
                    transaction.retention.lock()
                    with transaction.maintenance.open(who=self.worker, why=f"cleanup of the log {self.name}") as door:
                        slimmed = transaction.retention.slim(old, before=cutoff, states=ENDED)
                        if slimmed:
                            transaction.maintenance.note(
                                door, "slim", jobs=len(slimmed), first=slimmed[0], last=slimmed[-1]
                            )
                    transaction.counts.fold()
                dropped += len(slimmed)

    def _replayed(self, entry_id: int, apply: Apply, wait_s: float | None) -> WalEntry:
        deadline = None if wait_s is None else time.monotonic() + wait_s
        while True:
            held = self._begun(entry_id)
            if isinstance(held, Attempt):
                held = self._tried(held, apply, final=False)
            if isinstance(held, Busy):
                if self._ledger.world.clock is not None or (deadline is not None and time.monotonic() >= deadline):
                    raise _unavailable(entry_id, held)
                time.sleep(WAIT_S)
            elif held.state in ENDED:
                return wal_entries.entry_of(held)

    def _tried(self, attempt: Attempt, apply: Apply, *, final: bool) -> Job:
        """Make one attempt at a claimed entry, and return its job afterwards."""
        entry, boundary = wal_entries.entry_of(attempt.job), Boundary()
        try:
            result = payload_text(apply(entry, boundary))
            followups = self._ledger.followups(attempt, boundary.calls)
            outcome = self._completed(entry.id, result, boundary.effects, followups)
        except (StoreError, Snooze):
            self._give_back(attempt)
            raise
        except Exception as error:  # noqa: BLE001 - an error of apply, or of what it staged, fails this entry only
            self._note_failure(attempt, error, final=final or isinstance(error, Quarantine | Cancel))
        else:
            if isinstance(outcome, Job):
                return outcome
        finally:
            self._held.pop(entry.id, None)
        with self._store().reading() as reading:
            return self._job(reading, entry.id)

    def _note_failure(self, attempt: Attempt, error: Exception, *, final: bool) -> None:
        code, message = error_code(error), error_message(error)
        logger.warning(
            "Entry %d of log %s failed: %s",
            attempt.job.job_id,
            self.name,
            message,
            extra={"wal": self.name, "code": code},
        )
        # The old due time, so that the entry is due at once: recovery must not skip it.
        fail = Fail(attempt.execution.lease_token, code, message, retry_at=attempt.job.run_at, permanent=final)
        self._work(attempt, fail, ("during_failure", "after_failure"))

    def _give_back(self, attempt: Attempt) -> None:
        try:
            self._work(attempt, GiveBack(attempt.execution.lease_token, attempt.job.run_at, "recovery_interrupted"))
        except StoreError as error:
            logger.warning(
                "Could not release entry %d; it stays claimed until its lease ends: %s", attempt.job.job_id, error
            )


def _ended_as(wanted: EntryStatus, entry_id: int, outcome: Job | Busy) -> WalEntry:
    """Return an entry that has ended with the wanted status, or raise the reason why not."""
    if isinstance(outcome, Busy):
        raise _unavailable(entry_id, outcome)
    entry = wal_entries.entry_of(outcome)
    if entry.status is not wanted:
        raise InvalidStateTransitionError(
            f"Invalid transition: {entry.status} → {wanted}",
            next_step="An entry ends only once. Append a new entry.",
            context={"entry": entry_id, "status": str(entry.status)},
        )
    return entry


def _unavailable(entry_id: int, busy: Busy) -> StateTransitionRaceError:
    return StateTransitionRaceError(
        f"entry {entry_id} {busy.why} {busy.until.isoformat()}",
        next_step="Try again after that time.",
        context={"entry": entry_id, "until": busy.until.isoformat(), "holder": busy.holder},
    )
