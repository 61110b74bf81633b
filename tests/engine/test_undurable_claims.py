"""When a worker claims without a sync, and what makes such a claim durable."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from holdfast import Execution, Ledger, RetryPolicy, Strategy
from holdfast.core.errors import LeaseLostError
from holdfast.core.machines import JobState
from holdfast.engine.tasks import ClaimTask, Task
from holdfast.store import Lease
from holdfast.store.sqlite.store import SqliteStore
from tests.engine.working import drained, eventually, working

NORMAL, FULL = 1, 2
UNDURABLE = Lease(owner="worker-of-the-test", seconds=60, durable=False)


class Written:
    """Notes what a ledger writes through its committer, in order."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.claims: list[tuple[bool, int]] = []  # of each claim: whether it is durable, and how many others go with it
        self.names: list[str] = []
        store: Any = ledger.store
        perform, run = ledger.perform_tasks, store.run

        def performing(tasks: Sequence[Task[Any]]) -> None:
            claims = [task for task in tasks if isinstance(task, ClaimTask)]
            self.claims += [(task.lease.durable, len(tasks) - 1) for task in claims]
            perform(tasks)

        def running(connection: Any, name: str, params: Any) -> Any:
            self.names.append(name)
            return run(connection, name, params)

        monkeypatch.setattr(ledger, "perform_tasks", performing)
        monkeypatch.setattr(store, "run", running)


def synchronous(connection: sqlite3.Connection) -> int:
    [level] = connection.execute("PRAGMA synchronous").fetchone()
    return int(level)


def test_only_a_claim_without_ends_need_not_be_durable(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(ledger_url) as ledger:
        ledger.submit_many([{"operation": "noop"}] * 5)
        written = Written(ledger, monkeypatch)
        drained(ledger, batch_max=1)
        assert (False, 0) in written.claims
        assert all(durable is (others > 0) for durable, others in written.claims)
        assert "extend_leases" not in written.names


def test_a_claim_is_durable_where_others_learn_of_it_at_once(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(ledger_url) as ledger:
        ledger.submit("noop")
        ledger.subscribe(lambda _: None)
        written = Written(ledger, monkeypatch)
        drained(ledger)
        assert {durable for durable, _ in written.claims} == {True}


def test_a_claim_for_another_process_is_durable(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(ledger_url) as ledger:
        ledger.submit("noop")
        written = Written(ledger, monkeypatch)
        drained(ledger, executor="processes")
        assert {durable for durable, _ in written.claims} == {True}


@pytest.mark.req("M-11")
def test_a_token_that_is_read_makes_its_claim_durable_first(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(ledger_url) as ledger:
        seen: list[tuple[bool, int, int]] = []

        @ledger.operation("look")
        def look(run: Execution) -> None:
            before = "extend_leases" in written.names
            seen.append((before, run.token, written.names.count("extend_leases")))
            seen.append((before, run.token, written.names.count("extend_leases")))

        ledger.submit(look.call())
        written = Written(ledger, monkeypatch)
        drained(ledger)
        with ledger.store.reading() as reading:
            [execution] = reading.lists.executions(1)
        assert seen == [(False, execution.lease_token, 1)] * 2


def test_a_token_whose_lease_is_lost_is_not_given_out(ledger_url: str) -> None:
    with Ledger(ledger_url) as ledger:
        refused: list[str] = []

        @ledger.operation("look", retry=RetryPolicy(strategy=Strategy.NO_RETRY))
        def look(run: Execution) -> None:
            ledger.revoke(run.job.job_id, reason="test")
            try:
                run.token  # noqa: B018
            except LeaseLostError as error:
                refused.append(error.code)

        ledger.submit(look.call())
        with working(ledger):
            eventually(lambda: refused)
        assert refused[0] == "lease_lost"


@pytest.mark.req("K-14")
def test_the_claim_of_a_repeated_attempt_is_made_durable(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(ledger_url) as ledger:
        before: list[int] = []

        @ledger.operation("again", retry=RetryPolicy(strategy=Strategy.FIXED_DELAY, base_s=0.2, max_attempts=3))
        def again(run: Execution) -> None:
            before.append(written.names.count("extend_leases"))
            if run.attempt == 1:
                raise ConnectionError("not this time")

        ledger.submit(again.call())
        written = Written(ledger, monkeypatch)
        with working(ledger):
            eventually(lambda: ledger.job(1).state is JobState.SUCCEEDED)
        assert before == [0, 1]


# -- SQLite -----------------------------------------------------------------------------------------------------------


@contextmanager
def levels(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Note the level of `synchronous` at each COMMIT."""
    seen: list[int] = []
    commit = store._commit

    def committing(connection: sqlite3.Connection) -> None:
        seen.append(synchronous(connection))
        commit(connection)

    with monkeypatch.context() as patched:
        patched.setattr(store, "_commit", committing)
        yield seen


def test_a_lone_claim_on_sqlite_is_not_synced_and_every_other_transaction_is(
    new_sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(new_sqlite_ledger) as ledger:
        ledger.submit_many([{"operation": "noop"}] * 3)
        store = cast("SqliteStore", ledger.store)
        with levels(store, monkeypatch) as seen:
            for _ in range(2):
                ledger.perform_tasks([ClaimTask(UNDURABLE)])
                ledger.submit("noop")
            ledger.perform_tasks([ClaimTask(Lease(owner="w", seconds=60)), ClaimTask(UNDURABLE)])
        assert seen == [NORMAL, FULL, NORMAL, FULL, FULL]


def test_what_follows_a_claim_that_failed_is_synced(new_sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(new_sqlite_ledger) as ledger:
        ledger.submit("noop")
        store = cast("SqliteStore", ledger.store)

        def fail(_: sqlite3.Connection) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(store, "_commit", fail)
            with pytest.raises(KeyboardInterrupt):
                ledger.perform_tasks([ClaimTask(UNDURABLE)])
        with levels(store, monkeypatch) as seen:
            ledger.submit("noop")
        assert seen == [FULL]
