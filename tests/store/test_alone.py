"""A block with one statement that writes: what it commits, what it undoes, and what it leaves to the next user."""

from __future__ import annotations

import os
import socket

import psycopg
import pytest

from holdfast import Ledger
from holdfast.core.digest import payload_text
from holdfast.core.errors import CommitUnknownError, HoldfastError, IdempotencyConflictError, StoreUnavailableError
from holdfast.core.machines import JobState
from holdfast.store import Lease, Submission
from tests.store.verbs import Verbs

JOB = Submission(operation="noop", payload="{}", client="c", key="k")


def jobs(verbs: Verbs) -> int:
    [[n]] = verbs.query("SELECT count(*) FROM holdfast_jobs")
    return int(n)


@pytest.mark.req("M-02")
def test_a_lone_submit_is_committed_once_and_repeated_submits_find_it(verbs: Verbs) -> None:
    for expected in (True, False):
        with verbs.store.alone() as transaction:
            [admission] = transaction.jobs.submit([JOB])
        assert (admission.job_id, admission.is_new, jobs(verbs)) == (1, expected, 1)


def test_a_conflict_leaves_nothing_behind(verbs: Verbs) -> None:
    with verbs.store.alone() as transaction:
        transaction.jobs.submit([JOB])
    before = verbs.everything()
    other = Submission(operation="noop", payload="[1]", client="c", key="k")
    with pytest.raises(IdempotencyConflictError), verbs.store.alone() as transaction:
        transaction.jobs.submit([other])
    assert verbs.everything() == before


def test_the_next_user_of_the_connection_begins_a_transaction_again(verbs: Verbs) -> None:
    with verbs.store.alone() as transaction:
        transaction.jobs.submit([JOB])
    with verbs.undone() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}")])
    assert jobs(verbs) == 1


def test_plans_that_are_due_for_a_discard_do_not_begin_a_transaction(
    verbs: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.store.PLANS_S_MIN", 0.0)
    monkeypatch.setattr("holdfast.store.postgres.store.PLANS_S_MAX", 0.0)
    for n in range(1, 5):
        with verbs.store.alone() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}")])
        assert jobs(verbs) == n


def lose_and_submit(verbs: Verbs) -> None:
    with verbs.store.alone() as transaction:
        [[pid]] = transaction.execute("SELECT pg_backend_pid()")
        with verbs.store.transaction() as other:
            other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        transaction.jobs.submit([JOB])


def test_after_a_lost_connection_it_is_unknown_whether_the_statement_counts(verbs: Verbs) -> None:
    if verbs.store.one_writer:
        with pytest.raises(ZeroDivisionError), verbs.store.alone():
            raise ZeroDivisionError  # SQLite has no connection to lose: an ordinary transaction
        return
    with pytest.raises(CommitUnknownError) as caught:
        lose_and_submit(verbs)
    assert isinstance(caught.value, StoreUnavailableError)
    with verbs.store.alone() as transaction:
        [admission] = transaction.jobs.submit([JOB])
    assert admission.is_new


AT_COMMIT = """
CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON holdfast_jobs DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION at_commit()
"""


@pytest.mark.parametrize(
    "act, code",
    [
        ("RAISE EXCEPTION 'refused'", "refused_by_database"),
        ("PERFORM pg_terminate_backend(pg_backend_pid())", "commit_unknown"),
    ],
)
def test_a_submit_whose_commit_fails_after_its_row_was_sent_is_not_acknowledged(
    new_postgres_ledger: str, act: str, code: str
) -> None:
    with Ledger(new_postgres_ledger) as ledger, psycopg.connect(new_postgres_ledger, autocommit=True) as user:
        ledger.submit("noop")  # from here on a submit is one statement, which commits itself
        user.execute(AT_COMMIT.format(act).encode())
        for _ in range(2):
            with pytest.raises(HoldfastError) as refused:
                ledger.submit("noop", client="c", key="k")
            assert refused.value.code == code
        user.execute("DROP FUNCTION at_commit CASCADE")
        assert ledger.submit("noop", client="c", key="k").is_new
        assert [count.n for count in ledger.counts()] == [2]


@pytest.mark.timeout(60)
def test_a_payload_that_the_socket_does_not_take_at_once_is_sent_to_its_end(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger:
        ledger.submit("noop")
        connection = ledger.store.take()
        with socket.socket(fileno=os.dup(connection.pgconn.socket)) as sending:
            sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ledger.store.pool.give(connection, sound=True)
        payload = {"text": "x" * 1_000_000}
        assert ledger.job(ledger.submit("noop", payload).job_id).payload == payload_text(payload)


def test_a_lone_claim_is_committed_by_itself(verbs: Verbs) -> None:
    verbs.submit()
    with verbs.store.alone() as transaction:
        [attempt] = transaction.executions.claim(Lease(owner="w", seconds=60))
        with verbs.store.reading() as reading:  # on another connection, before the block ends
            state = reading.jobs.get(attempt.job_id).state
    assert state is (JobState.PENDING if verbs.store.one_writer else JobState.RUNNING)
    assert verbs.job(attempt.job_id).state is JobState.RUNNING
    with verbs.undone() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}")])
    assert jobs(verbs) == 1
