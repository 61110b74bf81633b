"""The committer: a lone caller pays for one transaction, a flood shares a few, and one bad task fails alone."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast import Call, Execution, IdempotencyConflictError, Ledger, Receipt, RetryPolicy, Strategy
from holdfast.core.commands import Complete, GiveBack
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import (
    CommitUnknownError,
    EffectError,
    RefusedByDatabaseError,
    StoreBusyError,
    StoreUnavailableError,
)
from holdfast.core.machines import JobState
from holdfast.core.records import Attempt
from holdfast.engine import at_once, committer, isolation
from holdfast.engine.committer import Committer
from holdfast.engine.tasks import CallTask, ClaimTask, EndTask, SubmitTask, Task
from holdfast.engine.world import Crash, World, nothing
from holdfast.store import Lease
from holdfast.store.effects import Effect
from holdfast.testing import VirtualClock, drain
from tests.engine.database import Database

NOOP = Call(operation="noop", payload={})
OWNER = "worker-of-the-test"


class Gate:
    """A World's `reach` that holds the first to come to a point until it is released."""

    def __init__(self) -> None:
        self.point: str | None = None
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.threads: list[int] = []

    def reach(self, point: str) -> None:
        self.threads.append(threading.get_ident())
        if point == self.point:
            self.point = None
            self.reached.set()
            assert self.go_on.wait(30)


class Watched:
    """A ledger whose transactions are counted."""

    def __init__(self, url: str) -> None:
        self.gate = Gate()
        self.ledger = Ledger(url, world=World(clock=VirtualClock(), reach=self.gate.reach))
        self.store: Any = self.ledger.store
        self.committer: Committer = self.ledger._open().committer
        self.commits = 0
        self.rollbacks = 0
        self._driver: Any = (self.store._commit, self.store._rollback)
        for name, counted in (("_commit", self.committing), ("_rollback", self.rolling_back)):
            setattr(self.store, name, counted)

    def committing(self, connection: Any) -> None:
        self.commits += 1
        self._driver[0](connection)

    def rolling_back(self, connection: Any) -> None:
        self.rollbacks += 1
        self._driver[1](connection)

    def gather(self, *callers: Callable[[], object]) -> list[Any]:
        """Let callers meet in one group, behind a leader that is held until all of them wait."""
        results: list[Any] = [None] * len(callers)

        def run(index: int) -> None:
            try:
                results[index] = callers[index]()
            except BaseException as error:  # noqa: BLE001 - the caller's answer
                results[index] = error

        self.gate.point = "during_submit"
        leader = threading.Thread(target=self.ledger.submit, args=(NOOP,))
        leader.start()
        assert self.gate.reached.wait(30)
        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(callers))]
        for waiting, thread in enumerate(threads):
            thread.start()
            while len(self.committer._waiting) <= waiting:
                time.sleep(0.0005)
        self.gate.go_on.set()
        for thread in [leader, *threads]:
            thread.join(30)
        return results

    def claim(self, n: int) -> list[Attempt]:
        task = ClaimTask(Lease(owner=OWNER, seconds=60, n=n))
        self.committer.perform([task])
        return task.result()

    def jobs(self) -> list[tuple[int, str]]:
        with self.store.reading() as reading:
            return sorted((job.job_id, job.state.value) for job in reading.lists.jobs(limit=1000))


@pytest.fixture
def watched(ledger_url: str) -> Iterator[Watched]:
    watched = Watched(ledger_url)
    yield watched
    watched.ledger.close()


# ---------------------------------------------------------------------------------------------------------------------
# Grouping


def test_a_lone_submit_is_one_transaction_in_the_callers_own_thread(watched: Watched) -> None:
    watched.ledger.submit(NOOP)
    assert (watched.commits, watched.rollbacks) == (1, 0)
    assert set(watched.gate.threads) == {threading.get_ident()}


def test_sqlite_begins_and_commits_once_for_a_lone_submit(sqlite_url: str) -> None:
    with Ledger(sqlite_url) as ledger:
        ledger.counts()
        traced: list[str] = []
        store: Any = ledger.store
        connections = list(store.pool._idle)
        for connection in connections:
            connection.set_trace_callback(traced.append)
        ledger.submit(NOOP)
        assert [text for text in traced if text.startswith(("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT"))] == [
            "BEGIN IMMEDIATE",
            "COMMIT",
        ]


@pytest.mark.req("W-18")
def test_a_hundred_threads_share_two_transactions(watched: Watched) -> None:
    receipts: list[Receipt] = watched.gather(
        *(lambda n=n: watched.ledger.submit(NOOP, client="c", key=str(n)) for n in range(99))
    )
    assert (watched.commits, watched.rollbacks) == (2, 0)
    assert all(receipt.is_new for receipt in receipts)
    assert len({receipt.job_id for receipt in receipts}) == 99
    assert len(watched.jobs()) == 100


@pytest.mark.req("W-03")
def test_callers_that_share_a_transaction_get_their_own_jobs(watched: Watched) -> None:
    def submit(n: int) -> list[int]:
        calls = [Call(operation="noop", payload={"n": [n, m]}) for m in range(n)]
        return [receipt.job_id for receipt in watched.ledger.submit_many(calls)]

    answers: list[list[int]] = watched.gather(*(lambda n=n: submit(n) for n in range(1, 6)))
    assert watched.commits == 2
    with watched.store.reading() as reading:
        payloads = [
            [msgspec.json.decode(reading.jobs.get(job_id).payload) for job_id in job_ids] for job_ids in answers
        ]
    assert payloads == [[{"n": [n, m]} for m in range(n)] for n in range(1, 6)]
    assert not watched.committer._waiting  # a batch that has its answer is not kept


def test_those_who_wait_are_woken(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """They look for a leader that has left now and then; an answer does not wait for that."""
    monkeypatch.setattr(committer, "LOST_S", 600.0)
    answers = watched.gather(*[lambda: watched.ledger.submit(NOOP)] * 3)
    assert [type(answer) for answer in answers] == [Receipt] * 3


def test_only_postgres_writes_plain_tasks_at_once(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on SQLite, and not where a crash may be planned between the steps of a transaction."""
    worlds: list[World] = []

    def noted(tasks: Sequence[Task[Any]], _store: object, _write: object) -> list[Task[Any]]:
        worlds.append(world)
        return list(tasks)

    monkeypatch.setattr(at_once, "write_at_once", noted)
    for world in (World(), World(reach=lambda _point: None)):
        with Ledger(ledger_url, world=world) as ledger:
            ledger.submit(NOOP)
    with_reach = [world.reach is not nothing for world in worlds]
    assert set(with_reach) == (set() if ledger_url.startswith("sqlite") else {False})


def test_a_write_within_a_write_of_the_same_thread_is_refused(ledger_url: str) -> None:
    """Such as one of a signal handler: it would wait for what it has interrupted."""
    refused: list[str] = []

    def reach(_point: str) -> None:
        try:
            ledger.submit(NOOP)
        except StoreBusyError as error:
            refused.append(str(error.context["reason"]))

    with Ledger(ledger_url, world=World(reach=reach)) as ledger:
        ledger.submit(NOOP)
    assert refused == ["reentered"] * 2  # during it and after it


def test_a_hundred_threads_with_one_key_get_one_job(watched: Watched) -> None:
    receipts: list[Receipt] = watched.gather(
        *[lambda: watched.ledger.submit(NOOP, client="c", key="same")] * 99,
    )
    assert watched.commits == 2
    assert len({receipt.job_id for receipt in receipts}) == 1
    assert [receipt.is_new for receipt in receipts].count(True) == 1
    assert len(watched.jobs()) == 2


def test_endings_submits_calls_and_the_next_claim_are_one_transaction(watched: Watched) -> None:
    watched.ledger.submit_many([NOOP] * 5)
    ended = [EndTask(attempt, Complete(attempt.execution.lease_token, "1")) for attempt in watched.claim(3)]
    submitted = SubmitTask([NOOP.submission(watched.ledger.operations.get("noop").declared, "{}")])  # type: ignore[union-attr]
    called = CallTask(lambda transaction: transaction.queues.paused())
    claimed = ClaimTask(Lease(owner=OWNER, seconds=60, n=10))
    watched.commits = 0
    tasks: list[Task[Any]] = [claimed, *ended, called, submitted]
    watched.committer.perform(tasks)
    assert watched.commits == 1
    assert all(isinstance(task.result(), Move) for task in ended)
    [admission] = submitted.result()
    # Written in an order of their own: what was submitted and freed can be claimed in the same transaction.
    assert [attempt.job.job_id for attempt in claimed.result()][-1] == admission.job_id
    assert (len(claimed.result()), called.result()) == (3, [])


def test_an_empty_list_of_tasks_begins_no_transaction(watched: Watched) -> None:
    watched.committer.perform([])
    assert (watched.commits, watched.ledger.submit_many([])) == (0, [])


# ---------------------------------------------------------------------------------------------------------------------
# One bad task fails alone

INSERT = "INSERT INTO things (name) VALUES (:name)"


@pytest.fixture
def things(watched: Watched, database: Database) -> Callable[[], list[str]]:
    """Tables of the user's, with constraints of every kind, and what is in one of them."""
    for statement in (
        "CREATE TABLE things (name text NOT NULL)",
        "CREATE TABLE parents (id integer PRIMARY KEY)",
        "CREATE TABLE children (parent integer REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TABLE locked (n integer)",
        "INSERT INTO parents VALUES (1)",
        "INSERT INTO locked VALUES (1)",
    ):
        database.run(statement)
    return lambda: sorted(name for (name,) in database.run("SELECT name FROM things"))


BAD = {
    "a syntax error": Effect("SELECT broken FROM", {}),
    "a missing table": Effect("INSERT INTO nowhere VALUES (1)", {}),
    "a missing parameter": Effect("INSERT INTO things (name) VALUES (:other)", {}),
    "a constraint": Effect("INSERT INTO parents VALUES (1)", {}),
    "a deferred constraint": Effect("INSERT INTO children VALUES (99)", {}),
    "another row count": Effect("UPDATE things SET name = 'x' WHERE name = 'nothing'", {}, 1),
    "a ROLLBACK": Effect("ROLLBACK", {}),
    "a table of the ledger": Effect("UPDATE holdfast_jobs SET state = 'quarantined'", {}),
}
LATER = "a deferred constraint"  # found at COMMIT
OR_ROLLBACK = Effect("INSERT OR ROLLBACK INTO parents VALUES (1)", {})  # SQLite's own way to end a transaction


def ended_with(watched: Watched, effects: Sequence[Sequence[Effect]]) -> list[EndTask]:
    """End one job for each list of effects, all in one group, and return the answered tasks."""
    watched.ledger.submit_many([NOOP] * len(effects))
    tasks = [
        EndTask(attempt, Complete(attempt.execution.lease_token, "1"), staged)
        for attempt, staged in zip(watched.claim(len(effects)), effects, strict=True)
    ]
    watched.committer.perform(tasks)
    return tasks


def fails_alone(watched: Watched, bad: Effect, error: type[Exception]) -> None:
    good = [[Effect(INSERT, {"name": f"good {n}"})] for n in range(4)]
    tasks = ended_with(watched, [*good[:2], [Effect(INSERT, {"name": "bad"}), bad], *good[2:]])
    assert [type(task.error) for task in tasks] == [type(None), type(None), error, type(None), type(None)]
    job_ids = [task.attempt.job.job_id for task in tasks]
    states = ["succeeded", "succeeded", "running", "succeeded", "succeeded"]
    assert watched.jobs() == list(zip(job_ids, states, strict=True))
    assert watched.ledger.submit(NOOP).is_new  # and the committer goes on


@pytest.mark.req("M-08")
@pytest.mark.parametrize("bad", BAD)
def test_one_bad_effect_fails_its_own_job_and_no_other(
    watched: Watched, things: Callable[[], list[str]], bad: str
) -> None:
    fails_alone(watched, BAD[bad], RefusedByDatabaseError if bad == LATER else EffectError)
    assert things() == ["good 0", "good 1", "good 2", "good 3"]


@pytest.mark.req("M-08")
@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
def test_sqlite_an_insert_or_rollback_fails_its_own_job_and_no_other(
    watched: Watched, things: Callable[[], list[str]]
) -> None:
    fails_alone(watched, OR_ROLLBACK, EffectError)
    assert things() == ["good 0", "good 1", "good 2", "good 3"]


def test_many_bad_effects_of_all_kinds_fail_alone(watched: Watched, things: Callable[[], list[str]]) -> None:
    bad = [*BAD.values(), *([OR_ROLLBACK] * 2 if watched.store.dialect == "sqlite" else [])]
    good = [Effect(INSERT, {"name": f"good {n:02}"}) for n in range(len(bad))]
    tasks = ended_with(watched, [[effect] for pair in zip(good, bad, strict=True) for effect in pair])
    assert [task.error is None for task in tasks] == [True, False] * len(bad)
    assert things() == [f"good {n:02}" for n in range(len(bad))]


def test_a_lone_bad_effect_is_tried_once(watched: Watched, things: Callable[[], list[str]]) -> None:
    watched.commits = watched.rollbacks = 0
    [task] = ended_with(watched, [[BAD["a constraint"]]])
    assert isinstance(task.error, EffectError)
    assert (watched.commits, watched.rollbacks) == (2, 1)  # submit and claim; the end


@pytest.mark.pg
@pytest.mark.req("M-08")
def test_an_effect_that_waits_for_a_users_lock_fails_alone(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.postgres.store.LOCK_S", 0.2)
    database, watched = Database(pg_url), Watched(pg_url)
    database.run("CREATE TABLE things (name text)")
    database.run("CREATE TABLE locked (n integer)")
    database.run("INSERT INTO locked VALUES (1)")
    holder = database.connect()
    holder.execute("BEGIN")
    holder.execute("UPDATE locked SET n = 2")
    bad = [Effect("UPDATE locked SET n = 3", {})]
    tasks = ended_with(watched, [[Effect(INSERT, {"name": "a"})], bad, [Effect(INSERT, {"name": "b"})]])
    holder.close()
    assert [type(task.error) for task in tasks] == [type(None), EffectError, type(None)]
    assert "lock timeout" in str(tasks[1].error)
    assert database.run("SELECT name FROM things ORDER BY name") == [("a",), ("b",)]
    assert database.run("SELECT n FROM locked") == [(1,)]
    watched.ledger.close()
    database.close()


@pytest.mark.pg
@pytest.mark.req("M-08")
@pytest.mark.parametrize("ledger_url", ["postgres"], indirect=True)
def test_an_effect_that_ends_its_own_connection_fails_its_own_job(
    watched: Watched, things: Callable[[], list[str]]
) -> None:
    fails_alone(watched, Effect("SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(5)", {}), EffectError)
    assert things() == ["good 0", "good 1", "good 2", "good 3"]


@pytest.mark.attack("faults")
def test_a_leader_that_has_left_is_replaced(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def leaves(_committer: Committer, _own: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_lead", leaves)
        with pytest.raises(KeyboardInterrupt):
            watched.ledger.submit(NOOP)
    submitted = threading.Thread(target=watched.ledger.submit, args=(NOOP,), daemon=True)
    submitted.start()
    submitted.join(20)
    assert not submitted.is_alive()
    assert len(watched.jobs()) == 1


@pytest.mark.attack("faults")
def test_a_caller_whose_leader_left_without_an_answer_gets_one_while_others_lead(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    another = committer._Batch([])  # of a caller that leads for long
    rescue = threading.Timer(10, another.here.release)
    groups: list[str] = []

    def reach(point: str) -> None:
        watched.gate.reach(point)
        groups.append(point)
        if groups.count("during_submit") == 2:  # the one that leads those who have gathered
            raise Crash(point)

    def interrupted(_tasks: object) -> None:
        monkeypatch.undo()
        another.here.acquire()
        watched.committer._leader = another
        rescue.start()
        raise KeyboardInterrupt

    monkeypatch.setattr(isolation, "answer_unknown", interrupted)
    watched.committer.world = msgspec.structs.replace(watched.committer.world, reach=reach)
    answers = watched.gather(*[lambda: watched.ledger.submit(NOOP)] * 3)
    assert another.here.locked()  # it still leads
    rescue.cancel()
    another.here.release()
    assert sorted(type(answer).__name__ for answer in answers) == ["CommitUnknownError"] * 2 + ["KeyboardInterrupt"]
    assert watched.ledger.submit(NOOP).is_new


def test_no_job_sees_another_half_done(watched: Watched, database: Database) -> None:
    database.run("CREATE TABLE numbers (n integer, owner integer)")
    pair = [
        Effect("INSERT INTO numbers (n) SELECT coalesce(max(n), 0) + 1 FROM numbers", {}),
        Effect("UPDATE numbers SET owner = :job WHERE n = (SELECT max(n) FROM numbers)", {"job": 7}),
    ]
    tasks = ended_with(watched, [pair] * 5)
    assert [task.error for task in tasks] == [None] * 5
    assert database.run("SELECT n, owner FROM numbers ORDER BY n") == [(n, 7) for n in range(1, 6)]


def test_one_bad_submit_of_a_group_fails_alone(watched: Watched) -> None:
    watched.ledger.submit(NOOP, client="c", key="taken")
    conflicting = Call(operation="noop", payload={"other": 1}, client="c", key="taken")
    answers = watched.gather(
        lambda: watched.ledger.submit(NOOP, client="c", key="a"),
        lambda: watched.ledger.submit_many([NOOP, conflicting]),
        lambda: watched.ledger.submit(conflicting),
        lambda: watched.ledger.submit(NOOP),
        lambda: watched.ledger.perform(lambda _: 1 / 0),
    )
    assert [type(answer) for answer in answers] == [
        Receipt, IdempotencyConflictError, IdempotencyConflictError, Receipt, ZeroDivisionError,
    ]  # fmt: skip
    assert len(watched.jobs()) == 4  # taken, the leader's, a, and the one without a key


@pytest.mark.req("M-08")
def test_the_worker_records_a_bad_effect_as_a_failure(ledger: Ledger, database: Database) -> None:
    database.run("CREATE TABLE parents (id integer PRIMARY KEY)")
    database.run("CREATE TABLE children (parent integer REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")

    @ledger.operation("bear", retry=RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=2))
    def bear(run: Execution, parent: int) -> None:
        run.effect("INSERT INTO children VALUES (:parent)", {"parent": parent})

    receipt = ledger.submit(bear.call(parent=99))
    assert drain(ledger) == 2
    job = ledger.job(receipt.job_id)
    assert (job.state, job.attempts, job.last_error_code) == (JobState.FAILED, 2, "refused_by_database")


# ---------------------------------------------------------------------------------------------------------------------
# When the answer to COMMIT is lost


def _lost(dialect: str) -> Exception:
    """Return what the driver raises when a connection or a disk fails under way."""
    if dialect == "postgres":
        return psycopg.OperationalError("server closed the connection unexpectedly")
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR"
    return error


class Losing:
    """Lets one COMMIT happen, or not, and loses its answer."""

    def __init__(self, watched: Watched, *, happens: bool, after: int = 0) -> None:
        self.watched = watched
        self.happens = happens
        self.before = after  # how many COMMITs are answered first
        watched.store._commit = self.commit

    def commit(self, connection: Any) -> None:
        self.before -= 1
        if self.before != -1:
            self.watched.committing(connection)
            return
        if self.happens:
            self.watched.committing(connection)
        else:
            self.watched.rolling_back(connection)
        raise _lost(self.watched.store.dialect)


@pytest.mark.req("W-03", "W-18")
@pytest.mark.parametrize("happens", [True, False])
def test_without_a_key_a_submit_whose_answer_was_lost_is_not_repeated(watched: Watched, happens: bool) -> None:
    Losing(watched, happens=happens)
    with pytest.raises(CommitUnknownError) as unknown:
        watched.ledger.submit(NOOP)
    assert unknown.value.code == "commit_unknown"
    assert len(watched.jobs()) == (1 if happens else 0)


@pytest.mark.req("W-03", "W-18")
@pytest.mark.parametrize("happens", [True, False])
def test_with_a_key_a_submit_whose_answer_was_lost_is_repeated(watched: Watched, happens: bool) -> None:
    Losing(watched, happens=happens)
    receipt = watched.ledger.submit(NOOP, client="c", key="k")
    assert receipt.is_new is not happens
    assert watched.jobs() == [(receipt.job_id, "pending")]


@pytest.mark.parametrize("happens", [True, False])
def test_a_group_whose_answer_was_lost_repeats_its_keyed_submits(
    watched: Watched, things: Callable[[], list[str]], happens: bool
) -> None:
    ledger = watched.ledger
    running, given = (ledger.submit(NOOP, priority=9).job_id for _ in range(2))
    completes, gives = watched.claim(2)
    complete = EndTask(completes, Complete(completes.execution.lease_token, "1"), [Effect(INSERT, {"name": "once"})])
    give_back = EndTask(gives, GiveBack(gives.execution.lease_token, ledger.store.now(), "x"))

    def end() -> list[type]:
        watched.committer.perform([complete, give_back])
        return [type(complete.result()), type(give_back.result())]

    Losing(watched, happens=happens, after=1)  # the leader before them gets its answer
    answers = watched.gather(
        lambda: ledger.submit(NOOP),
        lambda: ledger.submit(NOOP, client="c", key="k"),
        lambda: ledger.submit_many([NOOP, NOOP.keyed("c", "other")]),
        end,
    )
    assert [type(answer) for answer in answers[:3]] == [CommitUnknownError, Receipt, CommitUnknownError]
    assert answers[3] == ([Refused, Refused] if happens else [Move, Move])
    assert things() == ["once"]
    states = dict(watched.jobs())
    assert (states[running], states[given]) == ("succeeded", "pending")
    # The two that were there, the leader's, the keyed one, and those whose commit is unknown.
    assert len(states) == 4 + (3 if happens else 0)


@pytest.mark.req("W-03")
@pytest.mark.parametrize("what", ["tell subscribers", "announce"])
def test_an_error_after_the_commit_does_not_repeat_the_transaction(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    if what == "announce":
        monkeypatch.setattr(watched.store, "announce", broken)
    else:
        monkeypatch.setattr(watched.committer, "on_commit", broken)
    assert watched.ledger.submit(NOOP).is_new
    assert [receipt.is_new for receipt in watched.ledger.submit_many([NOOP, NOOP])] == [True, True]
    assert (len(watched.jobs()), watched.commits) == (3, 2)
    assert watched.rollbacks <= 1  # a reading may end with one
    assert len(caplog.records) == 2


# ---------------------------------------------------------------------------------------------------------------------
# When nothing can be begun, and when the leader dies


def test_if_no_transaction_can_begin_all_tasks_fail_at_once(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[None] = []

    def unavailable() -> Any:
        attempts.append(None)
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(watched.store, "take", unavailable)
    tasks = [CallTask(lambda _: None) for _ in range(50)]
    watched.committer.perform(tasks)
    assert [type(task.error) for task in tasks] == [StoreUnavailableError] * 50
    assert len(attempts) == 1
    monkeypatch.undo()
    assert watched.ledger.submit(NOOP).is_new


def test_sqlite_a_lock_that_is_held_costs_a_group_one_wait(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.store.BUSY_S", 0.1)
    watched, database = Watched(sqlite_url), Database(sqlite_url)
    holder = database.connect()
    begun: list[None] = []
    begin = watched.store._begin

    def counting(connection: Any) -> None:
        begun.append(None)
        begin(connection)

    watched.store._begin = counting
    holder.execute("BEGIN IMMEDIATE")
    tasks: list[Task[Any]] = [CallTask(lambda _: None) for _ in range(20)]
    watched.committer.perform(tasks)
    holder.close()
    assert [type(task.error) for task in tasks] == [StoreBusyError] * 20
    assert len(begun) == 1
    watched.ledger.close()
    database.close()


def test_a_transaction_that_is_interrupted_between_two_steps_is_rolled_back(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = watched.store.transaction

    class Interrupted:
        """A transaction whose caller is stopped when it has begun, before the first line of its block."""

        def __init__(self) -> None:
            self.gen = begin().gen

        def __enter__(self) -> None:
            next(self.gen)
            raise KeyboardInterrupt

        def __exit__(self, *_: object) -> None:
            pytest.fail("the block was not entered")

    with monkeypatch.context() as patched:
        patched.setattr(watched.store, "transaction", Interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            watched.committer.perform([CallTask(lambda _: "not called")])
    assert watched.rollbacks == 1
    del caught  # until here it keeps the generator, which would be closed with it
    assert watched.ledger.submit(NOOP).is_new


def test_callers_whose_leader_dies_get_commit_unknown(watched: Watched) -> None:
    groups: list[str] = []

    def reach(point: str) -> None:
        watched.gate.reach(point)
        if point == "during_submit":
            groups.append(point)
            if len(groups) == 2:  # the one that leads those who have gathered
                raise Crash(point)

    watched.committer.world = msgspec.structs.replace(watched.committer.world, reach=reach)
    answers = watched.gather(*[lambda: watched.ledger.submit(NOOP)] * 5)
    assert sorted(type(answer).__name__ for answer in answers) == ["CommitUnknownError"] * 4 + ["Crash"]
    assert watched.ledger.submit(NOOP).is_new  # another leads
    assert len(watched.jobs()) == 2


def test_a_task_that_has_no_answer_yet_raises_no_error(watched: Watched) -> None:
    task = CallTask(lambda _: "done")
    assert not task.answered
    watched.committer.perform([task])
    assert (task.answered, task.result()) == (True, "done")
