"""Claiming: which jobs are given out, in which order, and exactly what a winner gets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.core.commands import Commit, Complete
from holdfast.core.machines import ExecutionStatus, JobState
from holdfast.core.records import Attempt, Execution, time_text
from holdfast.store import Lease, Submission, create_store
from holdfast.store.statements import statements
from tests.store.conftest import OPERATIONS
from tests.store.verbs import WORKER, Verbs, changed, steps


def claimed(attempts: list[Attempt]) -> list[int]:
    return [attempt.job.job_id for attempt in attempts]


@pytest.mark.req("K-11", "K-20", "X-06", "M-01", "M-04", "G-29")
def test_a_winner_gets_an_execution_a_lease_and_a_token(verbs: Verbs) -> None:
    submitted = verbs.job(verbs.submit())
    now = verbs.clock.advance(5)
    [attempt] = verbs.claim(10, seconds=30)
    exec_id = submitted.job_id * 1_000_000 + 1
    assert attempt.job == changed(
        submitted, state=JobState.RUNNING, version=2, attempts=1, last_attempt_at=now, updated_at=now
    )
    assert attempt.execution == Execution(
        exec_id=exec_id,
        job_id=submitted.job_id,
        attempt=1,
        status=ExecutionStatus.IN_PROGRESS,
        version=2,
        lease_owner=WORKER,
        lease_token=int(now.timestamp() * 1_000_000),
        lease_expires_at=verbs.clock.after(30),
        excused=False,
        error_code=None,
        error_message=None,
        progress=None,
        progress_note=None,
        cancel_requested_at=None,
        started_at=now,
        finished_at=None,
        created_at=now,
        updated_at=now,
    )
    assert verbs.attempt(exec_id) == attempt
    assert steps(verbs.journal(submitted.job_id))[1:] == [
        (2, "pending", "running", "claim", WORKER, None, 1, None, now),
    ]
    assert steps(verbs.journal_of_executions(submitted.job_id)) == [
        (1, None, "LEASED", "begin", WORKER, None, 1, None, now),
        (2, "LEASED", "IN_PROGRESS", "begin", WORKER, None, 1, None, now),
    ]


@pytest.mark.req("M-03")
def test_a_prefetched_job_is_leased_and_not_started(verbs: Verbs) -> None:
    job_id = verbs.submit()
    now = verbs.clock()
    [attempt] = verbs.claim(begin=False)
    execution = attempt.execution
    assert (execution.status, execution.version, execution.started_at) == (ExecutionStatus.LEASED, 1, None)
    assert verbs.attempt(execution.exec_id) == attempt
    assert attempt.job.state == JobState.RUNNING
    assert steps(verbs.journal_of_executions(job_id)) == [(1, None, "LEASED", "lease", WORKER, None, 1, None, now)]


def test_every_edge_of_one_claim_carries_one_move_id(verbs: Verbs) -> None:
    jobs = [verbs.submit() for _ in range(3)]
    verbs.claim(3)
    verbs.submit()
    [other] = verbs.claim(3)
    first = {row.move_id for job in jobs for row in (*verbs.journal(job)[1:], *verbs.journal_of_executions(job))}
    second = {row.move_id for row in verbs.journal(other.job.job_id)[1:]}
    assert len(first) == 1
    assert len(second) == 1
    assert first != second


@pytest.mark.req("X-06")
def test_every_claim_counts_and_tokens_only_grow(verbs: Verbs) -> None:
    job_id = verbs.submit()
    tokens = []
    for attempts in (1, 2, 3):
        [attempt] = verbs.claim(seconds=10)
        tokens.append(attempt.execution.lease_token)
        assert (attempt.job.attempts, attempt.execution.attempt) == (attempts, attempts)
        verbs.clock.advance(10)
        verbs.recover()
    assert tokens == sorted(set(tokens))
    # A claim is one edge, an expiry two.
    assert (verbs.job(job_id).version, verbs.job(job_id).attempts) == (1 + 3 * 3, 3)
    assert [execution.attempt for execution in verbs.executions(job_id)] == [1, 2, 3]


@pytest.mark.req("G-18")
def test_higher_priority_goes_first_then_due_time_then_age(verbs: Verbs) -> None:
    early, late = verbs.clock.after(-20), verbs.clock.after(-10)
    low = verbs.submit(priority=-1, run_at=early)
    newer = verbs.submit(run_at=late)
    same = verbs.submit(run_at=late)
    older = verbs.submit(run_at=early)
    urgent = verbs.submit(priority=9)
    assert claimed(verbs.claim(10)) == [urgent, older, newer, same, low]


@pytest.mark.req("G-18", "G-19")
def test_a_job_is_claimed_from_its_due_time_on(verbs: Verbs) -> None:
    """The backoff is within one day, and a microsecond decides: times are compared as times."""
    job_id = verbs.submit(run_at=verbs.clock.after(3600.000001))
    verbs.clock.advance(3600)
    assert verbs.claim() == []
    verbs.clock.advance(0.000001)
    assert claimed(verbs.claim()) == [job_id]


def test_a_job_that_waits_does_not_hold_up_those_behind_it(verbs: Verbs) -> None:
    verbs.submit(priority=9, run_at=verbs.clock.after(1))
    due = verbs.submit(priority=0)
    assert claimed(verbs.claim(5)) == [due]


def test_a_claim_takes_jobs_of_the_named_queues_only(verbs: Verbs) -> None:
    red, blue, green = (verbs.submit(queue=queue) for queue in ("red", "blue", "green"))
    assert claimed(verbs.claim(5, queues=("blue",))) == [blue]
    assert sorted(claimed(verbs.claim(5, queues=("green", "red", "blue", "nowhere")))) == [red, green]
    assert verbs.claim(5) == []


@pytest.mark.parametrize("queues", [("red", "blue"), ("blue", "red")])
def test_priority_counts_across_queues(verbs: Verbs, queues: tuple[str, ...]) -> None:
    """Also if one queue has all the high priorities: the other queue's jobs wait."""
    jobs = [verbs.submit(queue=queue, priority=at) for at, queue in enumerate(["blue"] * 3 + ["red"] * 3)]
    assert claimed(verbs.claim(4, queues=queues)) == jobs[:1:-1]
    assert claimed(verbs.claim(4, queues=queues)) == jobs[1::-1]


def test_queues_with_equal_priority_share_a_claim(verbs: Verbs) -> None:
    jobs = {
        (queue, priority): verbs.submit(queue=queue, priority=priority)
        for priority in (0, 1, 2)
        for queue in ("red", "blue")
    }
    given = [verbs.claim(2, queues=("red", "blue")) for _ in range(3)]
    assert [sorted(claimed(attempts)) for attempts in given] == [
        [jobs["red", priority], jobs["blue", priority]] for priority in (2, 1, 0)
    ]


def test_a_queue_named_twice_gives_each_job_once(verbs: Verbs) -> None:
    job_id = verbs.submit()
    assert claimed(verbs.claim(5, queues=("default", "default"))) == [job_id]


def test_no_job_of_a_paused_queue_is_claimed_until_it_is_resumed(verbs: Verbs) -> None:
    red, blue = verbs.submit(queue="red"), verbs.submit(queue="blue")
    with verbs.store.transaction() as transaction:
        transaction.queues.pause("red", actor="operator-1", reason="upstream is down")
    assert claimed(verbs.claim(5, queues=("red", "blue"))) == [blue]
    with verbs.store.transaction() as transaction:
        assert transaction.queues.resume("red", actor="operator-1", reason="upstream is back")
    assert claimed(verbs.claim(5, queues=("red", "blue"))) == [red]


@pytest.mark.parametrize("n, expected", [(0, 0), (1, 1), (3, 3), (4, 4), (100, 4)])
def test_a_claim_returns_at_most_n_jobs_across_lanes(verbs: Verbs, n: int, expected: int) -> None:
    verbs.submit_all(
        [
            Submission(operation="noop", payload="{}", queue=queue, priority=priority)
            for queue in ("red", "blue")
            for priority in (0, 1)
        ]
    )
    before = verbs.everything()
    assert len(verbs.claim(n, queues=("red", "blue"))) == expected
    assert (verbs.everything() == before) == (expected == 0)


def test_each_operation_has_its_own_lease(verbs: Verbs) -> None:
    for operation in ("noop", "echo", "thumbnail"):
        verbs.submit(operation=operation)
    attempts = verbs.claim(3, seconds=30, seconds_by_operation={"echo": 2.5, "thumbnail": 600, "unheard-of": 1})
    assert {attempt.job.operation: attempt.execution.lease_expires_at for attempt in attempts} == {
        "noop": verbs.clock.after(30),
        "echo": verbs.clock.after(2.5),
        "thumbnail": verbs.clock.after(600),
    }


@pytest.mark.req("M-14")
def test_chosen_jobs_are_claimed_if_they_could_be_claimed_at_all(verbs: Verbs) -> None:
    due = [verbs.submit(priority=priority) for priority in (0, 5)]
    other = verbs.submit()
    later = verbs.submit(run_at=verbs.clock.after(1))
    paused = verbs.submit(queue="paused")
    resting = [verbs.job_in(state, queue=state).job_id for state in JobState if state is not JobState.PENDING]
    with verbs.store.transaction() as transaction:
        transaction.queues.pause("paused", actor="operator-1", reason="upstream is down")
    now = verbs.clock()
    with verbs.store.transaction() as transaction:
        lease = Lease(owner=WORKER, seconds=30, seconds_by_operation={"noop": 7})
        attempts = transaction.executions.claim_these([*due, later, paused, *resting, *due, 10_000], lease)
    assert sorted(claimed(attempts)) == due
    for attempt in attempts:
        assert verbs.attempt(attempt.execution.exec_id) == attempt
        assert (attempt.job.state, attempt.job.attempts, attempt.job.version) == (JobState.RUNNING, 1, 2)
        assert (attempt.execution.status, attempt.execution.lease_expires_at) == ("IN_PROGRESS", verbs.clock.after(7))
        assert steps(verbs.journal(attempt.job.job_id))[1:] == [
            (2, "pending", "running", "claim", WORKER, None, 1, None, now),
        ]
    assert verbs.job(other).state == JobState.PENDING


def test_any_name_of_an_operation_finds_its_lease(verbs: Verbs) -> None:
    names = ["nodd.ingest", "$.a", "0", "it's", "ünïcode", "a b", 'in "quotes"', "back\\slash"]
    with verbs.store.transaction() as transaction:
        transaction.operations.declare(dict.fromkeys(names, OPERATIONS["echo"]))
    for name in names:
        verbs.submit(operation=name)
    attempts = verbs.claim(20, seconds_by_operation={name: 100 + at for at, name in enumerate(names)})
    assert {attempt.job.operation: attempt.execution.lease_expires_at for attempt in attempts} == {
        name: verbs.clock.after(100 + at) for at, name in enumerate(names)
    }


@pytest.mark.req("M-14", "M-10")
@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.PENDING])
def test_only_a_pending_job_is_claimed(verbs: Verbs, state: JobState) -> None:
    verbs.job_in(state)
    before = verbs.everything()
    assert verbs.claim(5) == []
    assert verbs.everything() == before


def test_a_claim_returns_what_it_stored(ledger_url: str) -> None:
    """By the real clocks: each statement may read another moment, and the answer must be consistent."""
    with create_store(ledger_url) as store:
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}")] * 2, actor="client-1")
        with store.transaction() as transaction:
            attempts = transaction.executions.claim(Lease(owner=WORKER, seconds=30, n=2))
        with store.reading() as reading:
            assert [reading.lists.attempt(attempt.execution.exec_id) for attempt in attempts] == attempts
    for attempt in attempts:
        assert attempt.execution.started_at == attempt.execution.created_at == attempt.execution.updated_at


@pytest.mark.req("M-14")
def test_a_finished_job_and_a_committed_one_are_never_leased_again(verbs: Verbs) -> None:
    done, committed = verbs.submit(), verbs.submit()
    first, second = verbs.claim(2)
    assert claimed([first, second]) == [done, committed]
    verbs.work(first, Complete(first.execution.lease_token))
    verbs.work(second, Commit(second.execution.lease_token))
    verbs.clock.advance(1000)
    assert verbs.claim(5) == []


def test_jobs_that_wait_for_later_are_not_walked(verbs: Verbs) -> None:
    """However many jobs are due in the far future, a claim reads the due index up to now and no further."""
    far = verbs.clock.after(86400)

    def add(n: int) -> None:
        verbs.submit_all([Submission(operation="noop", payload="{}", priority=at % 2, run_at=far) for at in range(n)])

    add(1000)
    few = COSTS[verbs.store.dialect](verbs)
    add(3000)
    assert COSTS[verbs.store.dialect](verbs) == few
    due = verbs.submit(priority=0)
    assert claimed(verbs.claim(10)) == [due]


def _sqlite_cost(verbs: Verbs) -> tuple[list[str], int]:
    """Return which way into the jobs each step of a claim takes, and how many instructions SQLite runs for it."""
    [sql] = statements("sqlite")["claim_jobs"]
    now = time_text(verbs.clock())
    params = {
        "state": "running", "status": "IN_PROGRESS", "edges": 1, "event": "claim", "owner": WORKER,
        "queues": '["default"]', "leases": "{}", "expires": now, "started": now, "token": 1, "n": 10, "move_id": "m",
        "now": now,
    }  # fmt: skip
    ran = 0

    def count() -> int:
        nonlocal ran
        ran += 1
        return 0

    with verbs.store.transaction() as transaction:
        connection = transaction.connection
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", params)]
        connection.set_progress_handler(count, 1)
        assert connection.execute(sql, params).fetchall() == []
        connection.set_progress_handler(None, 0)
    ways = [line.replace("COVERING ", "") for line in plan if " j " in line or "holdfast_jobs" in line]
    ways = [way for way in ways if "holdfast_jobs_deadline" not in way]  # one look for the earliest
    assert ways == [
        "SEARCH holdfast_jobs USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH j USING INDEX holdfast_jobs_due (queue=?)",
        "SEARCH j USING INDEX holdfast_jobs_due (queue=? AND priority<?)",
        "SEARCH j USING INDEX holdfast_jobs_due (queue=? AND priority=? AND due_at>? AND due_at<?)",
    ]
    return ways, ran


def _postgres_cost(verbs: Verbs) -> list[tuple[str, str]]:
    """Return which way into the jobs each node of the plan takes, and how many rows it really found there."""
    [sql] = verbs.store._statements["claim_jobs"]  # type: ignore[attr-defined]
    params = {
        "state": "running", "status": "IN_PROGRESS", "edges": 1, "event": "claim", "owner": WORKER,
        "queues": '["default"]', "leases": "{}", "lease_s": 1.0, "begins": True, "n": 10, "move_id": "m",
        "now": verbs.clock(), "payload_max": 9, "durable": True,
    }  # fmt: skip
    with verbs.store.transaction() as transaction:
        connection = transaction.connection
        connection.execute("ANALYZE holdfast_jobs")
        rows = connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF, BUFFERS OFF, COSTS OFF) {sql}", params).fetchall()
    plan = [row[0].strip() for row in rows]
    found = [
        (line.partition(" (actual ")[0], line.partition(" (actual ")[2], plan[at + 1])
        for at, line in enumerate(plan)
        if "holdfast_jobs" in line and " on holdfast_jobs" in line and "holdfast_jobs_deadline" not in line
    ]
    assert found, plan
    written = [way for way, _, _ in found if "holdfast_jobs_due" not in way]  # the claimed rows, found by their ids
    assert [way.split(" on ")[0] for way in written] == ["->  Update", "->  Index Scan using holdfast_jobs_pkey"], plan
    lanes = [(way, cond) for way, _, cond in found if "due_at <= " in cond]
    assert len(lanes) == 1, plan
    return [(way, actual) for way, actual, _ in found]


COSTS: dict[str, Callable[[Verbs], object]] = {"sqlite": _sqlite_cost, "postgres": _postgres_cost}
