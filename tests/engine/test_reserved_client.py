"""The client name of follow-ups is reserved for the ledger: no other caller can take their keys."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from holdfast import Call, Execution, Ledger
from holdfast.audit.check.runner import check
from holdfast.compat import Boundary, Wal, WalEntry
from holdfast.core.errors import InputError
from holdfast.core.machines import JobState
from holdfast.store import Submission
from tests.engine.database import Database

pytestmark = pytest.mark.attack("sql")

NOOP = Call(operation="noop", payload={})
STOLEN = NOOP.keyed("holdfast", "1/1")


def in_a_transaction(ledger: Ledger, database: Database) -> None:
    with closing(database.connect()) as connection:
        connection.execute("BEGIN")
        ledger.submit(STOLEN, connection=connection)


def of_the_store(ledger: Ledger, _: Database) -> None:
    with ledger.store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}", client="holdfast", key="1/1")])


WAYS: dict[str, Callable[[Ledger, Database], object]] = {
    "submit": lambda ledger, _: ledger.submit("noop", client="holdfast", key="1/1"),
    "submit without a key": lambda ledger, _: ledger.submit("noop", client="holdfast"),
    "submit of a call": lambda ledger, _: ledger.submit(STOLEN),
    "submit_many": lambda ledger, _: ledger.submit_many([NOOP, STOLEN]),
    "submit_many of mappings": lambda ledger, _: ledger.submit_many(
        [{"operation": "noop", "client": "holdfast", "key": "1/1"}]
    ),
    "submit in the caller's transaction": in_a_transaction,
    "the store": of_the_store,
    "the log": lambda ledger, _: Wal(ledger).append_with_idempotency("holdfast", 1, "Create", b""),
    "the log without a key": lambda ledger, _: Wal(ledger).append("holdfast", "Create", b""),
}


def jobs(database: Database) -> list[tuple[Any, ...]]:
    return database.run("SELECT client, key FROM holdfast_calls ORDER BY job_id")


@pytest.mark.parametrize("way", WAYS)
def test_a_submit_under_the_reserved_client_is_refused(ledger: Ledger, database: Database, way: str) -> None:
    with pytest.raises(InputError) as refused:
        WAYS[way](ledger, database)
    assert (refused.value.code, refused.value.context) == ("bad_input", {"client": "holdfast"})
    assert "'holdfast'" in refused.value.message
    assert jobs(database) == []


def test_a_follow_up_under_the_reserved_client_fails_its_job(ledger: Ledger, database: Database) -> None:
    @ledger.operation(max_attempts=1)
    def steals(run: Execution) -> None:
        run.after_commit(NOOP.keyed("holdfast", "999/1"))

    job_id = ledger.submit(steals.call()).job_id
    ledger.run_until_idle()
    job = ledger.job(job_id)
    assert (job.state, job.last_error_code) == (JobState.FAILED, "bad_input")
    assert jobs(database) == [("local", None)]


def test_follow_ups_without_a_key_have_the_reserved_client(ledger: Ledger, database: Database) -> None:
    @ledger.operation()
    def parent(run: Execution) -> None:
        run.after_commit(NOOP)
        run.after_commit(NOOP.keyed("web", "mine"))
        run.after_commit(NOOP)

    def apply(_entry: WalEntry, boundary: Boundary) -> None:
        boundary.after_commit(NOOP)

    ledger.submit(parent.call())
    ledger.run_until_idle()
    wal = Wal(ledger)
    wal.execute(wal.append("web", "Create", b""), apply)
    ledger.run_until_idle()
    assert jobs(database) == [
        ("local", None), ("holdfast", "1/1"), ("holdfast", "1/3"), ("web", "mine"), ("web", None), ("holdfast", "5/1"),
    ]  # fmt: skip
    assert {job.state for job in map(ledger.job, range(1, 7))} == {JobState.SUCCEEDED}
    assert check(ledger.store).violations == ()
