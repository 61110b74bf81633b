"""The store against the oracle: random verbs in random order, and every field of every row compared after each.

One database serves all examples of a test: each has a client and queues of its own, compares the rows that came after
it began, and ends by letting every lease run out, so that the next one finds nothing open.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from holdfast.core.commands import (
    Cancel,
    Commit,
    Complete,
    Expire,
    Fail,
    Finish,
    GiveBack,
    Quarantine,
    Replay,
    Retry,
    Start,
)
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import IdempotencyConflictError, RefusedByDatabaseError
from holdfast.core.governed import Grant, GrantEvent, Release
from holdfast.core.journal import JournalRow
from holdfast.core.project import project, rulings_of
from holdfast.core.records import Attempt, Execution, Job
from holdfast.store import Lease, Submission
from holdfast.store.rows import reader
from holdfast.store.statements import columns as columns_of
from tests.store.conftest import phases
from tests.store.oracle import OPEN, Conflict, Oracle
from tests.store.verbs import OPERATOR, REAPER, WORKER, Verbs, changed, found

read_grant, read_journal_row = reader(Grant), reader(JournalRow)

OPERATIONS = ("noop", "echo")
INDEX = st.integers(0, 11)
DELAY = st.sampled_from([None, -3.0, 0.0, 1.5])
# A year, because a token off by 1 can be that of the next attempt of the job, which has the same owner here.
OFF = st.sampled_from([0, 0, 0, 0, 0, 365 * 24 * 3600 * 1_000_000])
VERBS = ("start", "commit", "finish", "complete", "fail", "give_back", "recover")
# Mostly what fits the status or the state, or most steps would be refusals.
FITTING = {
    "LEASED": ("start", "start", "fail", "give_back"),
    "IN_PROGRESS": ("commit", "complete", "fail", "fail", "give_back"),
    "COMMITTED": ("finish",),
    "DONE": VERBS,
    "ABORTED": VERBS,
    "pending": ("quarantine", "cancel"),
    "running": ("quarantine", "retry"),
    "succeeded": ("retry", "cancel"),
    "failed": ("replay", "retry", "replay", "quarantine"),
    "quarantined": ("quarantine", "retry"),
}
MOVE = st.tuples(
    st.sampled_from([None, None, None, *VERBS]),
    INDEX,
    OFF,
    st.sampled_from([None, '"result"']),
    DELAY,
    st.sampled_from(["", "", "", "permanent", "cancelled"]),
)


class LedgerMachine(RuleBasedStateMachine):
    """Every verb of the store as a rule."""

    examples = itertools.count()

    def __init__(self, verbs: Verbs) -> None:
        super().__init__()
        self.verbs = verbs
        self.clock = verbs.clock
        self.oracle = Oracle(verbs.clock)
        self.tag = f"example-{next(self.examples)}"
        self.queues = (f"{self.tag}-red", f"{self.tag}-blue")
        [(self.first_job, self.first_grant, self.first_row)] = verbs.query(
            "SELECT (SELECT coalesce(max(job_id), 0) FROM holdfast_jobs),"
            " (SELECT coalesce(max(grant_id), 0) FROM holdfast_grants),"
            " (SELECT coalesce(max(seq), 0) FROM holdfast_journal)"
        )

    # -- picking ------------------------------------------------------------------------------------------------------

    def pick_job(self, index: int, state: str) -> int:
        """Return a job in this state two times out of three, if there is one, else any."""
        known = sorted(self.oracle.jobs)
        fitting = [job_id for job_id in known if self.oracle.jobs[job_id]["state"] == state]
        chosen = fitting if fitting and index % 3 else known
        return chosen[-1 - index // 3 % len(chosen)]

    def pick_execution(self, index: int) -> int:
        """Return an open execution two times out of three, if there is one, else any."""
        known = sorted(self.oracle.executions)
        still_open = [exec_id for exec_id in known if self.oracle.executions[exec_id]["status"] in OPEN]
        chosen = still_open if still_open and index % 3 else known
        return chosen[-1 - index // 3 % len(chosen)]

    def at(self, delay: float | None) -> Any:
        return None if delay is None else self.clock.after(delay)

    # -- verbs --------------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.submit([(operation, None, "[0]", 0, 0, None, 2, 1) for operation in OPERATIONS])
        self.claim(1, (0,), begin=True, seconds=15.0, by_operation={})

    @rule(
        batch=st.lists(
            st.tuples(
                st.sampled_from(OPERATIONS),
                st.sampled_from([None, None, "a", "b", "c"]),
                st.sampled_from(["[0]", "[0]", "[1]"]),
                st.integers(0, 1),
                st.integers(-1, 1),
                DELAY,
                st.integers(1, 2),
                st.integers(0, 1),
            ),
            min_size=1,
            max_size=3,
        )
    )
    def submit(self, batch: list[tuple[Any, ...]]) -> None:
        submissions = [
            Submission(
                operation=operation,
                payload=payload,
                client=self.tag,
                key=key,
                queue=self.queues[queue],
                priority=priority,
                run_at=self.at(delay),
                max_attempts=max_attempts,
                replay_attempts=replay_attempts,
            )
            for operation, key, payload, queue, priority, delay, max_attempts, replay_attempts in batch
        ]
        try:
            expected = self.oracle.expected(submissions)
        except Conflict:
            with pytest.raises(IdempotencyConflictError):
                self.verbs.submit_all(submissions)
            return
        before = {job_id: Job(**job) for job_id, job in self.oracle.jobs.items()}
        with self.verbs.store.transaction() as transaction:
            admitted = transaction.jobs.submit(submissions, actor=self.tag)
        by_key: dict[str, int] = {}
        for submission, answer, admission in zip(submissions, expected, admitted, strict=True):
            assert admission.is_new == (answer is None)
            if answer is None:
                assert admission.existing is None
                self.oracle.submitted(submission, admission.job_id, self.tag)
                if submission.key is not None:
                    by_key[submission.key] = admission.job_id
            elif isinstance(answer, int):
                assert admission.job_id == answer
                assert admission.existing == before[answer]
            else:
                assert admission.job_id == by_key[answer]

    @rule(
        n=st.integers(1, 3),
        queues=st.sampled_from([(0,), (0, 1), (1, 0)]),
        begin=st.booleans(),
        seconds=st.sampled_from([6.0, 15.0]),
        by_operation=st.sampled_from([{}, {"echo": 9.5}]),
    )
    def claim(
        self, n: int, queues: tuple[int, ...], begin: bool, seconds: float, by_operation: dict[str, float]
    ) -> None:
        lease = Lease(
            owner=WORKER,
            seconds=seconds,
            n=n,
            queues=tuple(self.queues[queue] for queue in queues),
            seconds_by_operation=by_operation,
            begin=begin,
        )
        with self.verbs.store.transaction() as transaction:
            attempts = transaction.executions.claim(lease)
        self.oracle.claimed(lease, [(a.job.job_id, a.execution.exec_id) for a in attempts])
        for attempt in attempts:
            assert attempt.job == Job(**self.oracle.jobs[attempt.job.job_id])
            assert attempt.execution == Execution(**self.oracle.executions[attempt.execution.exec_id])

    @rule(move=MOVE)
    def work_on_one(self, move: tuple[Any, ...]) -> None:
        self.work([move])

    @rule(move=MOVE, n=st.integers(1, 3))
    def claim_and_work(self, move: tuple[Any, ...], n: int) -> None:
        self.submit([("noop", None, "[0]", 0, 0, None, 1, n - 1)])
        self.claim(n, (0, 1), begin=True, seconds=15.0, by_operation={})
        self.work([move])

    @rule(moves=st.lists(MOVE, min_size=2, max_size=4))
    def work(self, moves: list[tuple[Any, ...]]) -> None:
        wanted: dict[int, tuple[str, int, object, dict[str, Any]]] = {}
        for chosen, index, off, result, delay, how in moves:
            exec_id = self.pick_execution(index)
            if exec_id in wanted:
                continue
            fitting = FITTING[self.oracle.executions[exec_id]["status"]]
            verb = chosen or fitting[index % len(fitting)]
            token, at = self.oracle.executions[exec_id]["lease_token"] + off, self.clock.after(delay or 0.0)
            given: dict[str, Any] = {}
            command: object
            if verb == "start":
                command = Start(token)
            elif verb == "commit":
                command, given = Commit(token, result or "null"), {"result": result or "null"}
            elif verb == "finish":
                command = Finish(token)
            elif verb == "complete":
                command, given = Complete(token, result or "null"), {"result": result or "null"}
            elif verb == "give_back":
                command, given = GiveBack(token, at), {"run_at": at}
            elif verb == "fail":
                given = {"code": "boom", "message": f"by-{how}", "retry_at": self.at(delay)}
                command = Fail(
                    token,
                    **given,
                    permanent=how == "permanent",
                    quarantine_code="cancelled" if how == "cancelled" else None,
                )
                given |= {"permanent": how == "permanent", "cancelled": how == "cancelled"}
            else:
                # A command of the reaper: it has no token, and the lease must have expired.
                committed = self.oracle.executions[exec_id]["status"] in ("COMMITTED", "DONE")
                command, given = (Finish() if committed else Expire(at)), {"retry_at": at}
            wanted[exec_id] = verb, token, command, given
        with self.verbs.store.transaction() as transaction:
            commands = [
                (found(transaction.lists.attempt(exec_id)), command) for exec_id, (_, _, command, _) in wanted.items()
            ]
            answers = transaction.executions.move(commands, actor=WORKER)
        for (exec_id, (verb, token, _, given)), answer in zip(wanted.items(), answers, strict=True):
            accepted = self.oracle.work(verb, exec_id, token, WORKER, **given)
            assert isinstance(answer, Move) == accepted, (verb, answer)

    @rule(index=INDEX, off=OFF, seconds=st.sampled_from([0.5, 12.0]))
    def beat(self, index: int, off: int, seconds: float) -> None:
        exec_id = self.pick_execution(index)
        shown = self.shown(exec_id, off)
        expected = self.oracle.beat(exec_id, shown.execution.lease_token, seconds)
        assert self.verbs.beat(shown, seconds) == expected

    @rule(index=INDEX, off=OFF, note=st.sampled_from([None, "halfway"]))
    def progress(self, index: int, off: int, note: str | None) -> None:
        exec_id = self.pick_execution(index)
        shown = self.shown(exec_id, off)
        expected = self.oracle.progress(exec_id, shown.execution.lease_token, 0.5, note)
        assert self.verbs.progress(shown, 0.5, note) == expected

    def shown(self, exec_id: int, off: int) -> Attempt:
        """Return an attempt as a worker shows it, with a token that is off by so much."""
        attempt = self.verbs.attempt(exec_id)
        return Attempt(attempt.job, changed(attempt.execution, lease_token=attempt.execution.lease_token + off))

    @rule(n=st.sampled_from([1, 2, 100]), delay=DELAY)
    def recover(self, n: int, delay: float | None) -> None:
        retry_at = self.clock.after(delay or 0.0)
        expired = self.oracle.expired()
        answers = self.verbs.recover(n=n, retry_at=retry_at)
        chosen = [attempt.execution.exec_id for attempt, _ in answers]
        assert len(set(chosen)) == len(chosen) == min(n, len(expired))
        assert set(chosen) <= set(expired)
        ends = sorted(self.oracle.executions[exec_id]["lease_expires_at"] for exec_id in expired)
        assert sorted(self.oracle.executions[exec_id]["lease_expires_at"] for exec_id in chosen) == ends[:n]
        committed = [self.oracle.executions[exec_id]["status"] == "COMMITTED" for exec_id in chosen]
        assert committed == sorted(committed, reverse=True)
        for exec_id, (_, answer) in zip(chosen, answers, strict=True):
            assert isinstance(answer, Move)
            assert self.oracle.work("recover", exec_id, 0, REAPER, retry_at=retry_at)

    @rule(
        chosen=st.sampled_from([None, None, None, "retry", "replay", "quarantine", "cancel"]),
        index=INDEX,
        off=st.sampled_from([0, 0, 0, 0, -1]),
        delay=DELAY,
        word=st.sampled_from(["incident", "backfill", "because"]),
    )
    def rule_on_a_job(self, chosen: str | None, index: int, off: int, delay: float | None, word: str) -> None:
        job_id = self.pick_job(index, "failed")
        job = self.verbs.job(job_id)
        fitting = FITTING[job.state]
        verb = chosen or fitting[index % len(fitting)]
        command, given = {
            "retry": (Retry(self.at(delay)), {"run_at": self.at(delay)}),
            "replay": (Replay(word, self.at(delay)), {"replay_reason": word, "run_at": self.at(delay)}),
            "quarantine": (Quarantine(word, "so"), {"code": word, "message": "so"}),
            "cancel": (Cancel(), {}),
        }[verb]
        answer = self.verbs.rule(changed(job, version=job.version + off), command)
        expected = self.oracle.rule(verb, job_id, job.version + off, OPERATOR, **given)
        seen = "refused" if isinstance(answer, Refused) else "moved" if answer.steps else "no-op"
        assert seen == expected

    @rule(index=INDEX, delay=DELAY)
    def release(self, index: int, delay: float | None) -> None:
        job = self.verbs.job(self.pick_job(index, "quarantined"))
        grant = self.verbs.active_grant(job.job_id)
        request_columns = {"grant_id", "action", "target", "scope", "requested_by", "expires_at", "reason"}
        given = {name: value for name, value in msgspec.structs.asdict(grant).items() if name in request_columns}
        self.oracle.granted(given, "approver-1")
        command = Release(OPERATOR, "mended", grant.grant_id)
        if job.state != "quarantined":
            # Refused, or a no-op: then the grant must not be consumed, so the caller rolls back.
            with self.verbs.undone() as transaction:
                transaction.grants.move(grant, GrantEvent("consume", OPERATOR), move_id="m")
                [answer] = transaction.rulings.rule(
                    [(job, command)], actor=OPERATOR, move_id="m", grant_id=grant.grant_id
                )
                assert isinstance(answer, Refused) == (job.state != "pending")
            return
        with pytest.raises(RefusedByDatabaseError), self.verbs.store.transaction() as transaction:
            transaction.rulings.rule([(job, command)], actor=OPERATOR, grant_id=grant.grant_id)
        assert isinstance(self.verbs.release(job, grant, run_at=self.at(delay)), Move)
        self.oracle.release(job.job_id, grant.grant_id, OPERATOR, "it was mended", self.at(delay))

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 30.0, -2.5]))
    def advance(self, seconds: float) -> None:
        self.clock.jump_to(self.clock.after(seconds))

    @rule()
    def fold(self) -> None:
        self.verbs.fold()

    # -- comparing ----------------------------------------------------------------------------------------------------

    @invariant()
    def rows_agree(self) -> None:
        oracle = self.oracle
        with self.verbs.store.reading() as reading:

            def rows(columns: str, source: str) -> list[tuple[Any, ...]]:
                sql = f"SELECT {columns_of(columns)} FROM {source}"
                return self.verbs.store.execute(reading.connection, sql)

            jobs = {
                job.job_id: job
                for job in map(
                    reading.jobs._job,
                    rows(
                        "job_columns",
                        "holdfast_jobs j JOIN holdfast_calls c ON c.job_id = j.job_id"
                        f" WHERE j.job_id > {self.first_job}",
                    ),
                )
            }
            assert jobs == {job_id: Job(**job) for job_id, job in oracle.jobs.items()}
            after = f"holdfast_executions e WHERE e.job_id > {self.first_job}"
            executions = {e.exec_id: e for e in map(reading.executions._execution, rows("execution_columns", after))}
            assert executions == {exec_id: Execution(**row) for exec_id, row in oracle.executions.items()}
            after = f"holdfast_grants g WHERE g.grant_id > {self.first_grant}"
            grants = {
                grant.grant_id: grant
                for grant in (read_grant(row, reading.store.moment) for row in rows("grant_columns", after))
            }
            assert grants == {grant_id: Grant(**grant) for grant_id, grant in oracle.grants.items()}
            after = f"holdfast_edges g WHERE g.seq > {self.first_row}"
            journal = [read_journal_row(row, reading.store.moment) for row in rows("journal_columns", after)]
            edges = [
                (
                    row.machine, row.subject, row.version, row.source, row.target, row.event, row.actor, row.reason,
                    row.attempt, row.grant_id, row.at,
                )
                for row in journal
            ]  # fmt: skip
            assert sorted(edges, key=repr) == sorted(oracle.journal, key=repr)
            counted = {(c.operation, c.queue, c.state): c.n for c in reading.counts.current() if c.queue in self.queues}
            assert counted == dict(oracle.counts())
        for job_id, job in jobs.items():
            of_job = [execution for execution in executions.values() if execution.job_id == job_id]
            about = [row for row in journal if row.machine == "JOB" and row.subject == job_id]
            assert job.state == project(of_job, rulings_of(about))

    def teardown(self) -> None:
        self.clock.advance(3600)
        self.verbs.recover(n=1000)


@pytest.mark.req("M-02", "M-04", "X-06", "X-07", "K-20", "G-07")
def test_the_store_agrees_with_the_oracle(verbs: Verbs) -> None:
    # A fifth of the profile: each example is a whole history, compared after every step.
    examples = settings().max_examples // 5
    run_state_machine_as_test(
        cast("type[LedgerMachine]", partial(LedgerMachine, verbs)),
        settings=settings(max_examples=examples, stateful_step_count=40, phases=phases()),
    )
