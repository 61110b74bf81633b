"""The moves of the write-ahead log of W: claim an entry, complete it with its effects, fail it, give it back.

The entries of a log are in their own queue, `wal:<name>`, which is always paused. Only the log resumes it, inside the
transaction in which it claims, so no other worker can claim an entry.

Invariants: an entry and its effects commit in one transaction; the first to complete an entry wins, and the effects
that others staged for it are dropped; only an expired lease is taken over; an entry is ended only with a fencing token
of this log and a live lease.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from holdfast.compat.wal_entries import WalOperation
from holdfast.core.commands import Complete, Expire, Finish, Retry
from holdfast.core.decide import Refused
from holdfast.core.entries import ENTRY_STATUS, EntryStatus
from holdfast.core.errors import HoldfastError, JobNotFoundError, StateTransitionRaceError, invariant
from holdfast.core.log_names import OPERATION_PREFIX, QUEUE_PREFIX
from holdfast.core.machines import ExecutionStatus, JobState
from holdfast.core.records import Attempt, Execution, Job
from holdfast.engine.tasks import CallTask, Points
from holdfast.engine.worker.heartbeat import BEATS_A_LEASE
from holdfast.governance.switches import stopping, switched_off_error
from holdfast.store import Declared, Lease, Store, Submission, Transaction
from holdfast.store.effects import Effect

if TYPE_CHECKING:
    from holdfast.compat.wal_gate import RecoveryLease
    from holdfast.engine.ledger import Ledger
    from holdfast.store.transaction import Reading

RACES_MAX = 100
ID_MAX = (1 << 63) - 1
PAUSE_REASON = "a write-ahead log: only the log itself completes its entries"
PENDING = tuple(state for state, status in ENTRY_STATUS.items() if status is EntryStatus.PENDING)
ENDED = tuple(state for state, status in ENTRY_STATUS.items() if status is not EntryStatus.PENDING)

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Busy(msgspec.Struct, frozen=True):
    """An entry that cannot be claimed yet: until when, why, and who holds it."""

    until: datetime
    why: str
    holder: str | None = None


class _AgainError(HoldfastError):
    """The entry moved while it was being ended: roll back, and read it again."""


class EntryMover:
    """The moves of one log. Each object is a separate worker with its own leases."""

    def __init__(self, ledger: Ledger, name: str, lease_s: float, max_attempts: int) -> None:
        self.name = name
        self.queue = f"{QUEUE_PREFIX}{name}"
        self.worker = f"wal-{name}-{ledger.world.new_name()}"
        self.lease_s = lease_s
        self._ledger = ledger
        self._declared = {
            self._operation(operation): Declared(queue=self.queue, max_attempts=max_attempts, replay_attempts=0)
            for operation in WalOperation
        }
        self._known_to: Store[Any] | None = None
        self._held: dict[int, Execution] = {}  # by entry

    def _operation(self, operation: WalOperation) -> str:
        return f"{OPERATION_PREFIX}{self.name}.{operation}"

    def _store(self) -> Store[Any]:
        """Return the open store, after declaring this log's operations and pausing its queue."""
        store = self._ledger.store
        if store is not self._known_to:  # first use, or the ledger is bound to another database now
            with store.reading() as reading:
                known = self._declared.items() <= reading.operations.declared().items()
                paused = self.queue in reading.queues.paused()
            if not (known and paused):
                with store.transaction() as transaction:
                    transaction.operations.declare(self._declared)
                    transaction.queues.pause(self.queue, actor=self.worker, reason=PAUSE_REASON)
            store.operations.update(self._declared)
            self._known_to = store
        return store

    def _now(self) -> datetime:
        # Not `_store`: it may open a transaction, and this is called inside one.
        store = self._known_to
        invariant(store is not None, "a log is used before it was opened")
        return cast("Store[Any]", store).now()

    def _job(self, reading: Reading, entry_id: int) -> Job:
        found = reading.jobs.get_many([entry_id]) if _is_id(entry_id) else []
        if not found or found[0].queue != self.queue:
            raise JobNotFoundError(f"Log {self.name} has no entry {entry_id}", context={"entry": entry_id})
        return found[0]

    def _begun(self, entry_id: int) -> Attempt | Job | Busy:
        """Claim an entry durably; return its job instead if it has ended, or moved meanwhile."""
        held = self._perform(
            lambda transaction: self._seized(transaction, self._job(transaction, entry_id)),
            ("during_claim", "after_claim"),
        )
        if isinstance(held, Attempt):
            self._held[entry_id] = held.execution
        return held

    def _completed(
        self, entry_id: int, result: str, effects: Sequence[Effect], followups: Sequence[Submission] = ()
    ) -> Job | Busy:
        """Complete an entry with its effects and follow-up calls, unless it has ended."""

        def write(transaction: Transaction) -> Job | Busy:
            held = self._moved(transaction, entry_id, lambda token: Complete(token, result))
            if not isinstance(held, Attempt):
                return held
            transaction.apply([effects])
            if followups:
                transaction.jobs.submit(followups)
            return self._job(transaction, entry_id)

        return self._until_ended(write, ("before_commit", "after_commit"))

    def _failed(self, entry_id: int, failure: Callable[[int], object]) -> Job | Busy:
        """Fail an entry permanently, unless it has ended."""

        def write(transaction: Transaction) -> Job | Busy:
            held = self._moved(transaction, entry_id, failure)
            return self._job(transaction, entry_id) if isinstance(held, Attempt) else held

        return self._until_ended(write, ("during_failure", "after_failure"))

    def _work(self, attempt: Attempt, command: object, points: Points | None = None) -> None:
        """End an attempt by a command; do nothing if its lease was lost, because another worker has ended it."""

        def write(transaction: Transaction) -> None:
            now = transaction.lists.attempt(attempt.execution.exec_id)
            if now is not None:
                transaction.executions.move([(now, command)], actor=self.worker)

        self._perform(write, points)

    # -- inside a transaction -----------------------------------------------------------------------------------------

    def _moved(self, transaction: Transaction, entry_id: int, command: Callable[[int], object]) -> Attempt | Job | Busy:
        """Claim an entry and end it by a command that gets the token; return the attempt, or why there is none."""
        held = self._seized(transaction, self._job(transaction, entry_id))
        if isinstance(held, Attempt):
            [answer] = transaction.executions.move([(held, command(held.execution.lease_token))], actor=self.worker)
            if isinstance(answer, Refused):
                raise _AgainError(answer.message)
        return held

    def _seized(self, transaction: Transaction, job: Job) -> Attempt | Job | Busy:
        """Return an attempt of this log, or the job if it has ended or moved, or who holds it."""
        if job.state in ENDED:
            return job
        # Always lock the queue before the entry, so that two logs lock in the same order.
        with self._lifted(transaction):
            if job.state is JobState.RUNNING:
                found = self._found_running(transaction, job)
                if not isinstance(found, Job):
                    return found
                job = found
            if job.state is JobState.FAILED:
                transaction.rulings.rule([(job, Retry(job.run_at))], actor=self.worker, reason="retried by its log")
                job = transaction.jobs.get(job.job_id)
            if job.state is not JobState.PENDING:
                return job
            won = transaction.executions.claim_these([job.job_id], Lease(owner=self.worker, seconds=self.lease_s))
        if won:
            return won[0]
        if job.run_at > self._now():
            return Busy(job.run_at, "is not due before")
        job = transaction.jobs.get(job.job_id)
        switch = stopping(transaction, job.operation) if job.state is JobState.PENDING else None
        if switch is not None:
            raise switched_off_error(job.operation, switch)
        return job

    def _found_running(self, transaction: Transaction, job: Job) -> Attempt | Job | Busy:
        """Return the attempt of a running entry if this object holds it, or who does; end one with an expired lease."""
        attempt = transaction.lists.current_attempt(job.job_id)
        if attempt is None or attempt.job.version != job.version:
            return transaction.jobs.get(job.job_id)
        latest = attempt.execution
        if latest.lease_expires_at > self._now():
            held = self._held.get(job.job_id)
            ours = held is not None and held.lease_token == latest.lease_token
            owner = latest.lease_owner
            return attempt if ours else Busy(latest.lease_expires_at, f"is held by {owner} until", owner)
        committed = latest.status is ExecutionStatus.COMMITTED
        command = Finish() if committed else Expire(job.run_at)
        transaction.executions.move([(attempt, command)], actor=self.worker, reason="lease expired")
        return transaction.jobs.get(job.job_id)

    @contextmanager
    def _lifted(self, transaction: Transaction) -> Iterator[None]:
        """Resume the queue inside this transaction only; other connections never see it resumed."""
        # Not by the verbs: they would journal a change that no other transaction can see.
        said = {"queue": self.queue, "actor": self.worker, "reason": PAUSE_REASON}
        transaction.run("resume_queue", **said)
        yield
        transaction.run("pause_queue", **said, now=transaction.store.time_parameter())

    # -- around transactions ------------------------------------------------------------------------------------------

    def _until_ended(self, write: Callable[[Transaction], Job | Busy], points: Points) -> Job | Busy:
        """Write until the entry has ended, by this or another worker, or cannot be claimed."""
        for _ in range(RACES_MAX):
            try:
                outcome = self._perform(write, points)
            except _AgainError:
                continue
            if isinstance(outcome, Busy) or outcome.state in ENDED:
                return outcome
        raise StateTransitionRaceError(f"An entry of log {self.name} was moved by others {RACES_MAX} times; gave up")

    def _perform(self, write: Callable[[Transaction], T], points: Points | None = None) -> T:
        self._store()
        task = CallTask(write, points)
        self._ledger.perform_tasks([task])
        outcome: T = task.result()
        return outcome

    @contextmanager
    def _beating(self, right: RecoveryLease | None = None) -> Iterator[None]:
        """Extend the leases of the claimed entries, and of a recovery, from a thread, as long as the block lasts."""
        if self._ledger.world.clock is not None:  # on a virtual clock there are no other threads
            yield
            return
        stopped = threading.Event()
        thread = threading.Thread(target=self._beat, args=(stopped, right), name=f"holdfast-{self.queue}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def _beat(self, stopped: threading.Event, right: RecoveryLease | None) -> None:
        while not stopped.wait(self.lease_s / BEATS_A_LEASE):
            leases = [(execution, self.lease_s) for execution in list(self._held.values())]
            try:
                if leases or right is not None:
                    with self._store().transaction() as transaction:
                        if leases:
                            transaction.executions.extend_leases(leases)
                        if right is not None:
                            right.extend(transaction)
            except HoldfastError as error:
                logger.warning("A heartbeat of log %s failed; trying again: %s", self.name, error)


def _is_id(entry_id: object) -> bool:
    return isinstance(entry_id, int) and 0 < entry_id <= ID_MAX
