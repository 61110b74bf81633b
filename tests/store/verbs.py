"""The store's verbs as the tests use them: one verb, one transaction.

Invariants: nothing here decides; what a verb answers is what the store answered. `everything` reads the tables
themselves, so that "nothing was written" means every row of every table.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from holdfast.core.commands import Complete, Fail, Quarantine
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import RefusedError
from holdfast.core.governed import Grant, GrantEvent, Release
from holdfast.core.journal import JournalRow
from holdfast.core.machines import JobState
from holdfast.core.records import Attempt, Execution, Job
from holdfast.store import Admission, Lease, Store, Submission, Transaction
from holdfast.testing import VirtualClock

WORKER = "worker-1"
OPERATOR = "operator-1"
REAPER = "reaper-1"
TABLES = (
    "holdfast_calls",
    "holdfast_jobs",
    "holdfast_aborted",
    "holdfast_executions",
    "holdfast_journal",
    "holdfast_grants",
    "holdfast_leases",
    "holdfast_procedures",
    "holdfast_steps",
    "holdfast_collections",
    "holdfast_values",
    "holdfast_evidence",
    "holdfast_switches",
    "holdfast_approvers",
    "holdfast_counts",
    "holdfast_count_deltas",
    "holdfast_operations",
    "holdfast_queues",
    "holdfast_meta",
    "holdfast_maintenance",
    "holdfast_migrations",
    "holdfast_machines",
    "holdfast_transitions",
)

Answer = Move | Refused
T = TypeVar("T")


class _Undone(RefusedError):
    pass


class Verbs:
    """A store and its clock, with each verb in a transaction of its own."""

    def __init__(self, store: Store[Any], clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self._grant_numbers = itertools.count(1)

    # -- writing ------------------------------------------------------------------------------------------------------

    def submit_all(self, submissions: Sequence[Submission]) -> list[Admission]:
        with self.store.transaction() as transaction:
            return transaction.jobs.submit(submissions, actor="client-1", reason="as ordered")

    def submit(self, **fields: Any) -> int:
        """Submit one job and return its id."""
        [admission] = self.submit_all([Submission(**{"operation": "noop", "payload": "{}", **fields})])
        return admission.job_id

    def claim(self, n: int = 1, **fields: Any) -> list[Attempt]:
        with self.store.transaction() as transaction:
            return transaction.executions.claim(Lease(n=n, **{"owner": WORKER, "seconds": 30, **fields}))

    def claim_one(self, **fields: Any) -> Attempt:
        [attempt] = self.claim(1, **fields)
        return attempt

    def work_all(self, moves: Sequence[tuple[Attempt, object]], reason: str | None = None) -> list[Answer]:
        with self.store.transaction() as transaction:
            return transaction.executions.move(moves, actor=WORKER, reason=reason)

    def work(self, attempt: Attempt, command: object, reason: str | None = None) -> Answer:
        [answer] = self.work_all([(attempt, command)], reason)
        return answer

    def rule_all(self, rulings: Sequence[tuple[Job, object]], reason: str | None = None) -> list[Answer]:
        with self.store.transaction() as transaction:
            return transaction.rulings.rule(rulings, actor=OPERATOR, reason=reason)

    def rule(self, job: Job, command: object, reason: str | None = None) -> Answer:
        [answer] = self.rule_all([(job, command)], reason)
        return answer

    def recover(self, **fields: Any) -> list[tuple[Attempt, Answer]]:
        with self.store.transaction() as transaction:
            return transaction.recovery.recover(actor=REAPER, **fields)

    def beat(self, held: Attempt, seconds: float) -> bool:
        with self.store.transaction() as transaction:
            return held.execution.exec_id in transaction.executions.extend_leases([(held.execution, seconds)])

    def progress(self, held: Attempt, fraction: float, note: str | None = None) -> bool:
        with self.store.transaction() as transaction:
            return held.execution.exec_id in transaction.notes.save_progress([(held.execution, fraction, note)])

    def fold(self) -> None:
        with self.store.transaction() as transaction:
            transaction.counts.fold()

    def active_grant(self, target: int, seconds: float = 600) -> Grant:
        """Request and approve a grant to release one job; no two are alike, so that a job can have several."""
        with self.store.transaction() as transaction:
            grant_id = transaction.grants.request(
                action="release",
                target=f"job/{target}",
                scope=f"one job, requested {next(self._grant_numbers)} times",
                actor=OPERATOR,
                reason="it was mended",
                expires_at=self.clock.after(seconds),
            )
            draft = found(transaction.grants.get(grant_id))
            answer = transaction.grants.move(draft, GrantEvent("approve", "approver-1"))
            assert isinstance(answer, Move)
            return found(transaction.grants.get(grant_id))

    def release(self, job: Job, grant: Grant, **fields: Any) -> Answer:
        """Consume the grant and release the job in one transaction, under one move id."""
        with self.store.transaction() as transaction:
            move_id = f"release-{job.job_id}-{grant.grant_id}"
            consumed = transaction.grants.move(grant, GrantEvent("consume", OPERATOR), move_id=move_id)
            assert isinstance(consumed, Move), consumed
            command = Release(operator=OPERATOR, reason="it was mended", grant_id=grant.grant_id, **fields)
            [answer] = transaction.rulings.rule(
                [(job, command)], actor=OPERATOR, reason="it was mended", move_id=move_id, grant_id=grant.grant_id
            )
            return answer

    @contextmanager
    def undone(self) -> Iterator[Transaction]:
        """Yield a transaction of which nothing stays."""
        try:
            with self.store.transaction() as transaction:
                yield transaction
                raise _Undone("as planned")
        except _Undone:
            pass

    # -- reading ------------------------------------------------------------------------------------------------------

    def job(self, job_id: int) -> Job:
        with self.store.reading() as reading:
            return reading.jobs.get(job_id)

    def attempt(self, exec_id: int) -> Attempt:
        with self.store.reading() as reading:
            return found(reading.lists.attempt(exec_id))

    def executions(self, job_id: int) -> list[Execution]:
        with self.store.reading() as reading:
            return reading.lists.executions(job_id)

    def journal(self, job_id: int) -> list[JournalRow]:
        with self.store.reading() as reading:
            return reading.journal.of(job_id)

    def journal_of_executions(self, job_id: int) -> list[JournalRow]:
        with self.store.reading() as reading:
            return reading.journal.of_executions(job_id)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self.store.reading() as reading:
            return self.store.execute(reading.connection, sql)

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return every row of every table of the ledger."""
        with self.store.reading() as reading:
            return {
                table: sorted(self.store.execute(reading.connection, f"SELECT * FROM {table}"), key=repr)
                for table in TABLES
            }

    # -- jobs in each state -------------------------------------------------------------------------------------------

    def job_in(self, state: JobState, **fields: Any) -> Job:
        """Return a new job that has been brought to a state by its verbs; it leaves no other job due."""
        job_id = self.submit(**fields)
        if state is JobState.QUARANTINED:
            assert isinstance(self.rule(self.job(job_id), Quarantine("poison", "it cannot be read")), Move)
        elif state is not JobState.PENDING:
            [attempt] = self.claim(1, queues=(self.job(job_id).queue,))
            assert attempt.job.job_id == job_id
            if state is JobState.SUCCEEDED:
                command: object = Complete(attempt.execution.lease_token, '"result"')
                assert isinstance(self.work(attempt, command), Move)
            elif state is JobState.FAILED:
                assert isinstance(self.work(attempt, fail(attempt)), Move)
        found = self.job(job_id)
        assert found.state == state
        return found


def fail(attempt: Attempt, **fields: Any) -> Fail:
    """Return the command that fails an attempt under its own token."""
    return Fail(**{"token": attempt.execution.lease_token, "code": "boom", "message": "it broke", **fields})


def steps(rows: Iterable[JournalRow]) -> list[tuple[Any, ...]]:
    """Return journal rows without what the database numbers: (version, source, target, event, actor, reason, …)."""
    return [
        (row.version, row.source, row.target, row.event, row.actor, row.reason, row.attempt, row.grant_id, row.at)
        for row in rows
    ]


def changed(record: Any, **fields: Any) -> Any:
    """Return a record with some fields replaced: what a verb should have left behind."""
    return msgspec.structs.replace(record, **fields)


def refusal(answer: Answer) -> str:
    """Return the code of a refusal."""
    assert isinstance(answer, Refused), answer
    return answer.code


def found(record: T | None) -> T:
    """Return a record that must be there."""
    assert record is not None
    return record


def together(*bodies: Callable[[], T]) -> list[T]:
    """Run the bodies at the same time, a thread each, and return their answers; an error of any is raised."""
    start = threading.Barrier(len(bodies))

    def run(body: Callable[[], T]) -> T:
        start.wait()
        return body()

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(run, bodies))
