"""The write-ahead log: an operation is logged first, ends once, and takes effect with its end or not at all."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Execution, Ledger, Worker
from holdfast.compat import (
    Boundary,
    Effect,
    EntryStatus,
    IdempotencyConflictError,
    InvalidStateTransitionError,
    JobNotFoundError,
    StateTransitionRaceError,
    Wal,
    WalEntry,
    WalOperation,
)
from holdfast.core.commands import Fail
from holdfast.core.entries import ENTRY_STATUS
from holdfast.core.errors import (
    EffectError,
    InputError,
    PayloadNotJsonError,
    PayloadTooLargeError,
    RefusedError,
    StoreUnavailableError,
)
from holdfast.core.machines import JobState
from holdfast.core.records import Attempt
from holdfast.governance.switches import lift, throw
from holdfast.store import Lease, Submission
from holdfast.testing import START, VirtualClock
from tests.compat.support import JOBS, everything, rows
from tests.compat.wal_support import append, apply, effects, put

START_MS = int(START.timestamp() * 1000)
PENDING, COMPLETED, FAILED = EntryStatus


# ---------------------------------------------------------------------------------------------------------------------
# Entries


@pytest.mark.req("W-01", "W-02", "W-17", "W-19")
def test_append_and_complete(wal: Wal, ledger_url: str, clock: VirtualClock) -> None:
    entry_id, is_new = wal.append_with_idempotency("alice", 7, "Create", b"body")
    assert (entry_id, is_new) == (1, True)
    logged = WalEntry(
        id=1,
        client="alice",
        operation=WalOperation.CREATE,
        idempotency_key=7,
        status=PENDING,
        created_at_ms=START_MS,
        completed_at_ms=None,
        attempts=0,
        error=None,
        result_expired=False,
        stored_data=b"body",
        stored_result=None,
    )
    assert wal.get(1) == logged
    assert rows(ledger_url, "SELECT count(*) FROM storage") == [(0,)]

    clock.advance(1.5)
    completed = wal.complete(1, {"ok": True}, effects=[put(logged)])
    assert (completed.status, completed.completed_at_ms) == (COMPLETED, START_MS + 1500)
    assert (completed.result, completed.data, completed.attempts) == ({"ok": True}, b"body", 1)
    assert wal.get(1) == completed
    assert rows(ledger_url, "SELECT entry, who, name, body FROM storage") == [(1, "alice", "7", "body")]
    # Logged first, then executed under a lease, then ended: the journal has the order.
    edges = rows(ledger_url, "SELECT source, target, event FROM holdfast_edges WHERE machine = 'JOB' ORDER BY seq")
    assert edges == [(None, "pending", "submit"), ("pending", "running", "claim"), ("running", "succeeded", "succeed")]


@pytest.mark.req("W-02", "W-04", "W-19")
def test_append_and_fail(wal: Wal, ledger_url: str, clock: VirtualClock) -> None:
    entry_id = wal.append("alice", "Delete", b"body")
    clock.advance(2)
    failed = wal.fail(entry_id, "no such agent; password=hunter2")
    assert (failed.status, failed.completed_at_ms) == (FAILED, START_MS + 2000)
    assert (failed.error, failed.result) == ("no such agent; password=***", None)
    assert effects(ledger_url) == {}
    [(state, code)] = rows(ledger_url, "SELECT state, quarantine_code FROM holdfast_jobs")
    assert (state, code) == ("quarantined", "wal_failed")


@pytest.mark.req("W-01", "W-17")
def test_bytes_are_returned_exactly(wal: Wal) -> None:
    large = random.Random(4).randbytes(500_000)
    for data in (b"", b"\x00\xff\xfe", bytes(range(256)), "é\u2028\x00".encode(), large):
        entry_id = wal.append("alice", "Update", data)
        assert wal.get(entry_id).data == data
        assert wal.pending_entries()[0].data == data
        seen: list[bytes] = []
        assert wal.execute(entry_id, lambda entry, _: seen.append(entry.data)).status is COMPLETED  # noqa: B023
        assert seen == [data]
        ids = [wal.append("alice", "Update", bytearray(data)), wal.append("alice", "Update", memoryview(data))]
        assert [entry.data for entry in wal.pending_entries()] == [data, data]
        for other in ids:
            wal.complete(other)


@pytest.mark.req("W-01", "W-17", "W-19")
def test_ids_grow_and_pending_entries_come_in_their_order(wal: Wal, ledger: Ledger) -> None:
    ids = [wal.append(client, operation, b"") for operation in WalOperation for client in ("zoe", "alice")]
    assert ids == sorted(set(ids))
    assert [(entry.id, entry.operation) for entry in wal.pending_entries()] == [
        (entry_id, list(WalOperation)[n // 2]) for n, entry_id in enumerate(ids)
    ]
    wal.complete(ids[2])
    wal.fail(ids[5], "no")
    assert [entry.id for entry in wal.pending_entries()] == [ids[n] for n in (0, 1, 3, 4, 6, 7)]
    assert wal.pending_count() == 6

    # Pending in W is pending, running or failed.
    other = Wal(ledger)
    running, resting = other._begun(ids[0]), other._begun(ids[1])
    assert isinstance(running, Attempt)
    assert isinstance(resting, Attempt)
    fail = Fail(resting.execution.lease_token, "x", "x")
    ledger.perform(lambda transaction: transaction.executions.move([(resting, fail)], actor="test"))
    states = [ledger.job(entry_id).state for entry_id in (ids[0], ids[1], ids[3])]
    assert states == [JobState.RUNNING, JobState.FAILED, JobState.PENDING]
    assert [(entry.id, entry.status) for entry in wal.pending_entries()] == [
        (ids[n], PENDING) for n in (0, 1, 3, 4, 6, 7)
    ]
    assert wal.pending_count() == 6
    # A failed entry is retried and completed like any other.
    assert wal.complete(ids[1]).status is COMPLETED


@pytest.mark.req("W-17")
def test_a_thousand_pending_entries_are_warned_of_once(
    wal: Wal, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    last = wal.append("alice", "Create", b"first")
    assert wal.pending_count() == 1
    submissions = [
        Submission(operation="wal.main.Create", payload='{"data":""}', client="bulk", queue="wal:main")
        for _ in range(898)
    ]
    with ledger.store.transaction() as transaction:
        transaction.jobs.submit(submissions)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):  # append looks now and then by itself: at its hundredth there are 999
            last = wal.append("alice", "Create", b"")
        assert caplog.messages == []
        assert wal.pending_count() == 999
        last = wal.append("alice", "Create", b"")
        assert [wal.pending_count(), wal.pending_count()] == [1000, 1000]
        assert [record.args for record in caplog.records] == [("main", 1000)]
        wal.complete(last)
        assert wal.pending_count() == 999
        wal.append("alice", "Create", b"")
        assert wal.pending_count() == 1000
        assert [record.args for record in caplog.records] == [("main", 1000)] * 2


@pytest.mark.req("W-17")
def test_appending_warns_by_itself(wal: Wal, ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    wal.append("alice", "Create", b"")
    submissions = [
        Submission(operation="wal.main.Create", payload='{"data":""}', client="bulk", queue="wal:main")
        for _ in range(950)
    ]
    with ledger.store.transaction() as transaction:
        transaction.jobs.submit(submissions)
    with caplog.at_level(logging.WARNING):
        for _ in range(99):
            wal.append("alice", "Create", b"")
    assert [record.args for record in caplog.records] == [("main", 1050)]


@pytest.mark.req("W-03")
def test_an_append_that_is_durable_does_not_fail_over_a_warning(
    wal: Wal, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone() -> list[object]:
        raise StoreUnavailableError("no server")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(ledger, "counts", gone)
        ids = [wal.append("alice", "Create", b"") for _ in range(100)]
    assert [(record.args[0], str(record.args[1])) for record in caplog.records if isinstance(record.args, tuple)] == [
        ("main", "no server")
    ]
    assert [entry.id for entry in wal.pending_entries()] == ids


# ---------------------------------------------------------------------------------------------------------------------
# Keys


@pytest.mark.req("W-03", "W-19")
def test_a_new_key_is_a_new_entry_and_an_old_one_is_not(wal: Wal, ledger_url: str) -> None:
    assert wal.append_with_idempotency("alice", 1, "Create", b"a") == (1, True)
    before = everything(ledger_url)
    assert wal.append_with_idempotency("alice", 1, "Create", b"a") == (1, False)
    assert everything(ledger_url) == before
    second, is_new = wal.append_with_idempotency("alice", 2, "Create", b"a")
    assert (second > 1, is_new) == (True, True)
    # A key is a client's own, and what has no key is never the same.
    third, is_new = wal.append_with_idempotency("bob", 1, "Create", b"other")
    assert (third > second, is_new) == (True, True)
    assert wal.append("alice", "Create", b"a") != wal.append("alice", "Create", b"a")


@pytest.mark.req("W-03", "W-19")
def test_a_key_answers_with_the_stored_result_after_the_end(wal: Wal, ledger_url: str) -> None:
    [entry_id, failed_id] = append(wal, 2)
    wal.complete(entry_id, [1, 2], effects=[put(wal.get(entry_id))])
    wal.fail(failed_id, "no")
    before = everything(ledger_url)
    assert append(wal, 2) == [entry_id, failed_id]
    assert wal.append_with_idempotency("alice", 1, "Create", b"body 1") == (entry_id, False)
    assert wal.get(entry_id).result == [1, 2]
    assert everything(ledger_url) == before
    assert effects(ledger_url) == {entry_id: 1}


@pytest.mark.req("W-18", "W-20", "W-19")
def test_another_payload_under_a_used_key_is_a_conflict(wal: Wal, ledger_url: str) -> None:
    [_pending, completed, failed] = append(wal, 3)
    wal.complete(completed)
    wal.fail(failed, "no")
    before = everything(ledger_url)
    for key in (1, 2, 3):
        for operation, data in (("Create", b"other"), ("Update", f"body {key}".encode()), ("Create", b"")):
            with pytest.raises(IdempotencyConflictError) as caught:
                wal.append_with_idempotency("alice", key, operation, data)
            assert caught.value.context == {"client": "alice", "key": str(key)}
    assert everything(ledger_url) == before


@pytest.mark.req("W-01", "W-17")
def test_an_entry_is_found_by_its_key(wal: Wal, ledger: Ledger) -> None:
    [entry_id] = append(wal, 1)
    assert wal.find_by_idempotency_key("alice", 1) == wal.get(entry_id)
    assert wal.find_by_idempotency_key("bob", 1) is None
    assert wal.find_by_idempotency_key("alice", 2) is None
    # A number and its digits are one key; anything else is text.
    assert wal.find_by_idempotency_key("alice", "1") == wal.get(entry_id)
    keys: dict[int | str, int | str] = {
        2**64 - 1: 2**64 - 1,
        "order-7": "order-7",
        "007": "007",
        str(2**64): str(2**64),
    }
    for key, shown in keys.items():
        other, _ = wal.append_with_idempotency("bob", key, "SendMessage", b"")
        assert wal.get(other).idempotency_key == shown
        assert wal.find_by_idempotency_key("bob", key) == wal.get(other)
    assert wal.get(wal.append("bob", "Create", b"")).idempotency_key is None
    # An entry of another log is not found.
    ledger.submit("noop", {}, client="carol", key="1")
    assert wal.find_by_idempotency_key("carol", 1) is None
    assert Wal(ledger, name="other").find_by_idempotency_key("alice", 1) is None


# ---------------------------------------------------------------------------------------------------------------------
# Ends


@pytest.mark.req("W-02", "W-18", "W-19")
def test_an_entry_ends_once(wal: Wal, ledger: Ledger, ledger_url: str) -> None:
    [completed, failed] = append(wal, 2)
    first = wal.complete(completed, "first", effects=[put(wal.get(completed))])
    last = wal.fail(failed, "first")
    before = everything(ledger_url)
    for again in (wal, Wal(ledger)):
        assert again.complete(completed, "second", effects=[put(first)]) == first
        assert again.fail(failed, "second") == last
        with pytest.raises(InvalidStateTransitionError, match=r"^Invalid transition: Failed → Completed$"):
            again.complete(failed, "x", effects=[put(last)])
        with pytest.raises(InvalidStateTransitionError, match=r"^Invalid transition: Completed → Failed$"):
            again.fail(completed, "x")
        assert again.execute(completed, apply) == first
        assert again.execute(failed, apply) == last
    assert everything(ledger_url) == before
    assert effects(ledger_url) == {completed: 1}


@pytest.mark.req("W-02", "W-08")
def test_the_statuses_of_an_entry_are_the_states_of_its_job() -> None:
    assert ENTRY_STATUS == {
        JobState.PENDING: PENDING,
        JobState.RUNNING: PENDING,
        JobState.FAILED: PENDING,
        JobState.SUCCEEDED: COMPLETED,
        JobState.QUARANTINED: FAILED,
    }


@pytest.mark.req("W-04", "W-08")
def test_an_entry_and_its_effects_are_committed_together(wal: Wal, ledger_url: str) -> None:
    [entry_id] = append(wal, 1)
    good = put(wal.get(entry_id))
    for bad in (
        Effect("INSERT INTO storage (entry, who) VALUES (:entry, NULL)", {"entry": 1}),
        Effect("INSERT INTO nowhere VALUES (1)", {}),
        Effect("UPDATE storage SET body = 'x'", {}, 7),
        Effect("DELETE FROM holdfast_jobs", {}),
        Effect("COMMIT", {}),
    ):
        before = everything(ledger_url)
        with pytest.raises(EffectError):
            wal.complete(entry_id, "x", effects=[good, bad])
        assert everything(ledger_url) == before
        assert effects(ledger_url) == {}
        assert wal.get(entry_id).status is PENDING
    wal.complete(entry_id, "x", effects=[good, good])
    assert effects(ledger_url) == {entry_id: 2}


@pytest.mark.req("W-04")
def test_executing_ends_an_entry_either_way(wal: Wal, ledger_url: str) -> None:
    [good, bad, refused] = append(wal, 3)
    assert (wal.execute(good, apply).status, wal.get(good).result) == (COMPLETED, {"stored": good})

    def half(entry: WalEntry, boundary: Boundary) -> None:
        apply(entry, boundary)
        raise ValueError("the other half is missing; token=s3cret")

    failed = wal.execute(bad, half)
    assert (failed.status, failed.error) == (FAILED, "ValueError: the other half is missing; token=***")

    def unfit(entry: WalEntry, boundary: Boundary) -> None:
        apply(entry, boundary)
        boundary.effect("INSERT INTO nowhere VALUES (1)")

    assert wal.execute(refused, unfit).status is FAILED
    assert "nowhere" in (wal.get(refused).error or "")
    assert effects(ledger_url) == {good: 1}


@pytest.mark.req("W-13", "W-19", "W-08")
def test_the_storage_holds_the_effects_of_all_operations(wal: Wal, ledger: Ledger, ledger_url: str) -> None:
    with ledger.store.transaction() as transaction:
        transaction.execute("CREATE TABLE agents (id text PRIMARY KEY, body text NOT NULL)")

    def carry_out(entry: WalEntry, boundary: Boundary) -> None:
        agent, _, body = entry.data.decode().partition("=")
        statement = {
            WalOperation.CREATE: "INSERT INTO agents (id, body) VALUES (:id, :body)",
            WalOperation.UPDATE: "UPDATE agents SET body = :body WHERE id = :id",
            WalOperation.DELETE: "DELETE FROM agents WHERE id = :id AND :body = ''",
        }[entry.operation]
        boundary.effect(statement, {"id": agent, "body": body}, rows=1)

    def do(operation: str, data: bytes) -> EntryStatus:
        return wal.execute(wal.append("alice", operation, data), carry_out).status

    assert [do("Create", b"a=1"), do("Create", b"b=1"), do("Update", b"a=2"), do("Delete", b"b")] == [COMPLETED] * 4
    # Creating what exists, changing or deleting what does not: the entry fails, and storage is as it was.
    assert [do("Create", b"a=3"), do("Update", b"b=3"), do("Delete", b"b")] == [FAILED] * 3
    assert rows(ledger_url, "SELECT id, body FROM agents") == [("a", "2")]


@pytest.mark.req("W-16", "X-08")
def test_a_message_is_a_job_of_its_own_keyed_by_its_entry(ledger: Ledger, ledger_url: str) -> None:
    @ledger.operation("deliver")
    def deliver(run: Execution, to: str) -> None:
        run.effect("INSERT INTO storage (entry, who) VALUES (0, :to)", {"to": to})

    wal = Wal(ledger)

    def send(entry: WalEntry, boundary: Boundary) -> None:
        boundary.after_commit(deliver.call(to=entry.data.decode()))
        boundary.after_commit(deliver.call(to="archive"))

    entry_id = wal.append("alice", "SendMessage", b"bob")
    for _ in range(2):
        wal.execute(entry_id, send)
        ledger.run_until_idle()
    messages = rows(
        ledger_url,
        f"SELECT client, key, state FROM {JOBS} WHERE operation = 'deliver' ORDER BY key",
    )
    assert messages == [("holdfast", f"{entry_id}/1", "succeeded"), ("holdfast", f"{entry_id}/2", "succeeded")]
    assert sorted(rows(ledger_url, "SELECT who FROM storage")) == [("archive",), ("bob",)]


# ---------------------------------------------------------------------------------------------------------------------
# The fleet


@pytest.mark.req("W-02")
def test_no_worker_of_the_fleet_takes_an_entry(wal: Wal, ledger: Ledger, ledger_url: str) -> None:
    [entry_id] = append(wal, 1)
    receipt = ledger.submit("noop", {})
    before = rows(ledger_url, "SELECT * FROM holdfast_jobs WHERE queue = 'wal:main'")
    assert "wal:main" in ledger.queues()
    assert ledger.run_until_idle() == 1
    Worker(ledger, queues=["wal:main"], executor="inline").run(until_idle=True)
    with ledger.store.transaction() as transaction:
        assert transaction.executions.claim(Lease(owner="w", seconds=30, n=10, queues=("wal:main", "default"))) == []
        assert transaction.executions.claim_these([entry_id], Lease(owner="w", seconds=30)) == []
    assert rows(ledger_url, "SELECT * FROM holdfast_jobs WHERE queue = 'wal:main'") == before
    assert ledger.receipt(receipt.job_id).state is JobState.SUCCEEDED
    for _ in range(2):
        wal.complete(entry_id)
        assert rows(ledger_url, "SELECT queue FROM holdfast_queues WHERE paused_at IS NOT NULL") == [("wal:main",)]


@pytest.mark.req("K-55")
def test_a_log_whose_operation_is_switched_off_refuses_and_keeps_the_entry(
    wal: Wal, ledger: Ledger, ledger_url: str
) -> None:
    [entry_id] = append(wal, 1)
    throw(ledger.store, "operation:wal.main.Create", actor="ada", reason="it eats disks")
    before = rows(ledger_url, "SELECT * FROM holdfast_jobs")
    ends: list[Callable[[], object]] = [
        lambda: wal.complete(entry_id),
        lambda: wal.fail(entry_id, "x"),
        lambda: wal.execute(entry_id, apply),
        lambda: wal.recover(apply),
    ]
    for end in ends:
        with pytest.raises(RefusedError) as caught:
            end()
        switched_off = {"switch": "operation:wal.main.Create", "thrown_by": "ada", "reason": "it eats disks"}
        assert caught.value.context == switched_off
        assert rows(ledger_url, "SELECT * FROM holdfast_jobs") == before
        assert rows(ledger_url, "SELECT queue FROM holdfast_queues WHERE paused_at IS NOT NULL") == [("wal:main",)]
    lift(ledger.store, "operation:wal.main.Create", actor="ada", reason="larger disks")
    assert wal.recover(apply).completed == (entry_id,)


@pytest.mark.req("W-03")
def test_an_entry_under_a_lease_is_not_ended_by_another_process(
    wal: Wal, ledger: Ledger, ledger_url: str, clock: VirtualClock
) -> None:
    # An operator lifts the pause by hand and a worker that knows nothing of the log takes the entry.
    [entry_id] = append(wal, 1)
    ledger.resume("wal:main")
    with ledger.store.transaction() as transaction:
        [attempt] = transaction.executions.claim(Lease(owner="stranger", seconds=30, queues=("wal:main",)))
    assert attempt.job.job_id == entry_id
    before = rows(ledger_url, "SELECT * FROM holdfast_jobs")
    ends: list[Callable[[], object]] = [
        lambda: wal.complete(entry_id),
        lambda: wal.fail(entry_id, "x"),
        lambda: wal.execute(entry_id, apply),
    ]
    for end in ends:
        with pytest.raises(StateTransitionRaceError) as caught:
            end()
        assert caught.value.context["holder"] == "stranger"
        assert str(caught.value.context["until"]).startswith("2026-03-14T09:27:23")
    assert rows(ledger_url, "SELECT * FROM holdfast_jobs") == before
    clock.advance(31)
    assert wal.complete(entry_id, effects=[put(wal.get(entry_id))]).status is COMPLETED
    assert effects(ledger_url) == {entry_id: 1}
    assert rows(ledger_url, "SELECT queue FROM holdfast_queues WHERE paused_at IS NOT NULL") == [("wal:main",)]


def test_logs_of_one_ledger_are_separate(ledger: Ledger) -> None:
    one, other = Wal(ledger, name="one"), Wal(ledger, name="other")
    [entry_id] = append(one, 1)
    [other_id] = append(other, 1, client="bob")
    assert [entry.id for entry in one.pending_entries()] == [entry_id]
    assert [entry.id for entry in other.pending_entries()] == [other_id]
    assert (one.pending_count(), other.pending_count()) == (1, 1)
    verbs: list[Callable[[int], object]] = [one.get, one.complete, lambda entry_id: one.fail(entry_id, "x")]
    for verb in verbs:
        with pytest.raises(JobNotFoundError):
            verb(other_id)
    # A key is its client's in the whole ledger: another log cannot use it for work of its own.
    with pytest.raises(IdempotencyConflictError):
        append(other, 1)


def test_a_log_follows_its_ledger_to_another_database(ledger: Ledger, sqlite_url: str) -> None:
    wal = Wal(ledger)
    append(wal, 2)
    with ledger.bound_to(f"{sqlite_url}.other"):
        assert append(wal, 1) == [1]
        assert wal.pending_count() == 1
    assert wal.pending_count() == 2


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


BAD: list[tuple[Callable[[Any], object], type[Exception]]] = [
    (lambda wal: wal.append("alice", "Drop", b""), InputError),
    (lambda wal: wal.append("alice", "create", b""), InputError),
    (lambda wal: wal.append("", "Create", b""), InputError),
    (lambda wal: wal.append(None, "Create", b""), InputError),
    (lambda wal: wal.append("a\0", "Create", b""), InputError),
    (lambda wal: wal.append("alice", "Create", "text"), InputError),
    (lambda wal: wal.append("alice", "Create", None), InputError),
    (lambda wal: wal.append("alice", "Create", bytes(1_000_000)), PayloadTooLargeError),
    (lambda wal: wal.append_with_idempotency("alice", "", "Create", b""), InputError),
    (lambda wal: wal.append_with_idempotency("alice", -1, "Create", b""), InputError),
    (lambda wal: wal.append_with_idempotency("alice", 2**64, "Create", b""), InputError),
    (lambda wal: wal.append_with_idempotency("alice", True, "Create", b""), InputError),
    (lambda wal: wal.append_with_idempotency("alice", None, "Create", b""), InputError),
    (lambda wal: wal.append_with_idempotency("alice", 1.5, "Create", b""), InputError),
    (lambda wal: wal.find_by_idempotency_key("alice", None), InputError),
    (lambda wal: wal.find_by_idempotency_key(None, 1), InputError),
    (lambda wal: wal.get(2), JobNotFoundError),
    (lambda wal: wal.get(0), JobNotFoundError),
    (lambda wal: wal.get(2**70), JobNotFoundError),
    (lambda wal: wal.get("1"), JobNotFoundError),
    (lambda wal: wal.complete(99), JobNotFoundError),
    (lambda wal: wal.fail(99, "x"), JobNotFoundError),
    (lambda wal: wal.execute(99, apply), JobNotFoundError),
    (lambda wal: wal.complete(1, {1, 2}), PayloadNotJsonError),
    (lambda wal: wal.cleanup("yesterday"), InputError),
    (lambda wal: wal.cleanup(-1), InputError),
    (lambda wal: wal.cleanup(timedelta(seconds=-1)), InputError),
    (lambda wal: wal.cleanup(START.replace(tzinfo=None)), InputError),
    (lambda wal: wal.cleanup(timedelta.max), InputError),
]


@pytest.mark.req("W-17")
def test_bad_input_is_a_typed_error_and_leaves_nothing(wal: Wal, ledger_url: str) -> None:
    append(wal, 1)
    before = everything(ledger_url)
    for number, (call, kind) in enumerate(BAD):
        with pytest.raises(kind) as caught:
            call(wal)
        assert (number, type(caught.value)) == (number, kind)
    assert everything(ledger_url) == before
    assert wal.pending_count() == 1


@pytest.mark.parametrize(
    "given", [{"name": ""}, {"name": "a b"}, {"name": "a:b"}, {"lease_s": 0}, {"lease_s": -1}, {"max_attempts": 0}]
)
def test_a_log_with_invalid_settings_is_refused(sqlite_url: str, given: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Wal(Ledger(sqlite_url), **given)
