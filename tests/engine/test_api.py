"""The public API as designed: declaring, calling, submitting, receipts, and the keys that make submitting safe."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Call, Execution, IdempotencyConflictError, Ledger, Operation, Operations, RetryPolicy
from holdfast.core.errors import (
    ArgumentsError,
    InputError,
    InvalidStateTransitionError,
    JobNotFoundError,
    PayloadTooLargeError,
    UnknownOperationError,
    WaitTimeoutError,
)
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.typed_settings import Settings
from holdfast.testing import VirtualClock, begin, drain
from tests.engine.database import Database


def jobs(ledger: Ledger) -> list[Job]:
    """Return every job, oldest first."""
    with ledger.store.reading() as reading:
        return reading.lists.jobs()[::-1]


def render(path: str, width: int) -> bytes:
    return f"{path} at {width}".encode()


@pytest.mark.req("M-08", "W-03", "W-20")
def test_the_example_of_the_design(empty_url: str) -> None:
    database = Database(empty_url)
    database.run(f"CREATE TABLE thumbs (path text, data {'bytea' if database.is_postgres else 'blob'})")
    notified_urls: list[str] = []

    ledger = Ledger(empty_url)

    @ledger.operation("notify")
    def notify(run: Execution, url: str) -> None:
        notified_urls.append(url)

    @ledger.operation("thumbnail", version="1.0.0", max_attempts=5, lease_s=30)
    def thumbnail(run: Execution, path: str, width: int) -> dict[str, int]:
        data = render(path, width)
        run.progress(0.5, "rendered")
        run.effect("INSERT INTO thumbs(path, data) VALUES (:path, :data)", {"path": path, "data": data})
        run.after_commit(notify.call(url="https://example.org/done"))
        return {"bytes": len(data)}

    call = thumbnail.call(path="a.png", width=64)
    first = ledger.submit(call, client="web", key="a.png@64", run_at=None, priority=0, connection=None)
    assert (first.job_id, first.is_new, first.state) == (1, True, JobState.PENDING)
    assert json.dumps(first.result) == "null"
    again = ledger.submit("thumbnail", {"path": "a.png", "width": 64}, client="web", key="a.png@64")
    assert (again.job_id, again.is_new, again.state, again.result) == (1, False, JobState.PENDING, None)
    more = ledger.submit_many(
        [
            call.keyed("web", "b"),
            {"operation": "thumbnail", "payload": {"path": "c.png", "width": 8}, "client": "web", "key": "c"},
        ]
    )
    assert [receipt.is_new for receipt in more] == [True, True]

    assert ledger.run_until_idle() == 6
    done = first.wait(timeout=5)
    assert (done.job_id, done.is_new, done.state, done.result) == (1, True, JobState.SUCCEEDED, {"bytes": 11})
    assert ledger.submit(call, client="web", key="a.png@64").result == {"bytes": 11}
    rows = [(path, bytes(data)) for path, data in database.run("SELECT path, data FROM thumbs ORDER BY path, data")]
    assert rows == [("a.png", b"a.png at 64"), ("a.png", b"a.png at 64"), ("c.png", b"c.png at 8")]
    assert notified_urls == ["https://example.org/done"] * 3
    notified = [(job.client, job.key) for job in jobs(ledger) if job.operation == "notify"]
    assert sorted(notified, key=str) == [("holdfast", f"{job_id}/1") for job_id in (1, *(r.job_id for r in more))]

    run = begin(ledger, call)
    assert thumbnail.fn(run, path="a.png", width=64) == {"bytes": 11}
    ledger.close()
    database.close()


# ---------------------------------------------------------------------------------------------------------------------
# Submitting


@pytest.fixture
def echo(ledger: Ledger) -> Operation[..., Any]:
    @ledger.operation("echo", queue="talk", priority=3, max_attempts=7, version="2.1.0")
    def echo(run: Execution, value: Any = None) -> Any:
        """Return the value."""
        return value

    return echo


def test_a_job_has_the_settings_of_its_operation_unless_the_submit_overrides_them(
    ledger: Ledger, clock: VirtualClock, echo: Operation[..., Any]
) -> None:
    ledger.submit(echo.call(value=1))
    ledger.submit(echo.call(value=2), client="c", key="k", run_at=clock.after(9), priority=0, queue="other")
    plain, specific = jobs(ledger)
    assert (plain.operation_version, plain.queue, plain.priority, plain.max_attempts) == ("2.1.0", "talk", 3, 7)
    assert (plain.client, plain.key, plain.run_at) == ("local", None, clock())
    assert (specific.queue, specific.priority, specific.max_attempts) == ("other", 0, 7)
    assert (specific.client, specific.key, specific.run_at) == ("c", "k", clock.after(9))
    assert echo.__doc__ == "Return the value."
    assert repr(echo) == "Operation('echo', version='2.1.0')"


@pytest.mark.req("W-03", "W-18", "W-20")
def test_a_key_names_one_piece_of_work_of_one_client(ledger: Ledger, echo: Operation[..., Any]) -> None:
    first = ledger.submit(echo.call(value=1), client="c", key="k")
    drain(ledger)
    again = ledger.submit(echo.call(value=1), client="c", key="k")
    assert (again.job_id, again.is_new, again.state, again.result) == (first.job_id, False, JobState.SUCCEEDED, 1)
    for other in (echo.call(value=2), Call(operation="noop", payload={"value": 1})):
        with pytest.raises(IdempotencyConflictError) as conflict:
            ledger.submit(other, client="c", key="k")
        assert conflict.value.context == {"client": "c", "key": "k"}
    assert ledger.submit(echo.call(value=2), client="another", key="k").is_new
    assert [ledger.submit(echo.call(value=1)).is_new for _ in range(2)] == [True, True]
    assert len(jobs(ledger)) == 4


@pytest.mark.parametrize(
    "settings, error",
    [
        ({"key": ""}, ArgumentsError),
        ({"run_at": datetime(2031, 1, 1)}, ArgumentsError),  # noqa: DTZ001 - that is the mistake
        ({"payload": {"value": 1}}, ArgumentsError),
    ],
)
def test_an_invalid_submit_writes_nothing(
    ledger: Ledger, echo: Operation[..., Any], settings: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        ledger.submit(echo.call(), **settings)
    assert jobs(ledger) == []


def test_an_operation_must_be_known_to_the_ledger(ledger: Ledger, ledger_url: str, echo: Operation[..., Any]) -> None:
    with pytest.raises(UnknownOperationError) as unknown:
        ledger.submit("nobody", {})
    assert unknown.value.context == {"operation": "nobody"}
    ledger.submit(echo.call())  # this process has declared it, so another may submit it by name
    with Ledger(ledger_url) as other:
        receipt = other.submit("echo", {"anything": "goes where the handler is not"})
        assert ledger.job(receipt.job_id).queue == "talk"
        assert other.submit("noop").is_new
    assert len(jobs(ledger)) == 3


def test_a_payload_beyond_the_limit_is_refused(ledger_url: str) -> None:
    with Ledger(ledger_url, payload_bytes_max=100) as ledger:
        with pytest.raises(PayloadTooLargeError):
            ledger.submit("noop", {"text": "x" * 100})
        assert ledger.submit("noop", {"text": "x" * 50}).is_new


def test_an_explicit_limit_wins_over_the_environment_and_that_over_the_default(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Ledger(sqlite_url).payload_bytes_max == 1 << 20
    monkeypatch.setenv("HOLDFAST_PAYLOAD_MAX_BYTES", "100")
    assert Ledger(sqlite_url).payload_bytes_max == 100
    assert Ledger(sqlite_url, payload_bytes_max=200).payload_bytes_max == 200
    monkeypatch.setenv("HOLDFAST_PAYLOAD_MAX_BYTES", "many")
    with pytest.raises(InputError):
        Ledger(sqlite_url)


@pytest.mark.req("W-03")
def test_submit_many_is_all_or_nothing(ledger: Ledger, echo: Operation[..., Any]) -> None:
    ledger.submit(echo.call(value=0), client="c", key="taken")
    good = echo.call(value=1).keyed("c", "good")
    bad: list[tuple[Call | dict[str, Any], type[Exception]]] = [
        (echo.call(value=1).keyed("c", "taken"), IdempotencyConflictError),
        (echo.call(value=2).keyed("c", "good"), IdempotencyConflictError),
        ({"operation": "nobody"}, UnknownOperationError),
        ({"operation": "echo", "payload": {"wrong": 1}}, ArgumentsError),
        ({"operation": "echo", "prio": 1}, ArgumentsError),
        ({"payload": {}}, ArgumentsError),
        (Call(operation="echo", payload={"value": {1, 2}}), InputError),
    ]
    for call, error in bad:
        with pytest.raises(error):
            ledger.submit_many([good, call])
    assert len(jobs(ledger)) == 1
    receipts = ledger.submit_many([good, good, echo.call(value=3), {"operation": "noop", "priority": 5}])
    assert [receipt.is_new for receipt in receipts] == [True, False, True, True]
    assert receipts[0].job_id == receipts[1].job_id
    assert ledger.submit_many([]) == []


@pytest.mark.req("K-11", "G-18")
def test_run_at_and_priority_decide_the_order(ledger: Ledger, clock: VirtualClock) -> None:
    order: list[int] = []

    @ledger.operation("note")
    def note(run: Execution, n: int) -> None:
        order.append(n)

    ledger.submit(note.call(1), run_at=clock.after(20))
    ledger.submit(note.call(2), run_at=clock.after(10))
    ledger.submit(note.call(3).at(clock.after(10)), priority=-1)
    ledger.submit(note.call(4))
    ledger.submit(note.call(5), priority=10)
    assert drain(ledger) == 2
    assert order == [5, 4]
    assert drain(ledger, until=clock.after(10)) == 2
    assert order == [5, 4, 2, 3]
    assert drain(ledger, until=clock.after(10)) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Receipts, looking and ruling


def test_a_receipt_is_a_snapshot_and_wait_follows_the_job(ledger: Ledger, echo: Operation[..., Any]) -> None:
    receipt = ledger.submit(echo.call(value="x"))
    assert repr(receipt) == f"Receipt(job_id={receipt.job_id}, is_new=True, state='pending')"
    with pytest.raises(WaitTimeoutError) as late:
        receipt.wait(0.01)
    assert late.value.context["state"] == "pending"
    assert late.value.context == {"job_id": receipt.job_id, "state": "pending"}
    drain(ledger)
    assert (receipt.state, receipt.result) == (JobState.PENDING, None)
    done = receipt.wait(0)
    assert (done.is_new, done.state, done.result, done.error_code) == (True, JobState.SUCCEEDED, "x", None)
    assert ledger.receipt(receipt.job_id).result == "x"
    with pytest.raises(JobNotFoundError):
        ledger.receipt(999)


def test_wait_ends_with_failed_and_with_quarantine(ledger: Ledger, echo: Operation[..., Any]) -> None:
    @ledger.operation("fail", max_attempts=1)
    def fail(run: Execution) -> None:
        raise RuntimeError("no")

    receipt = ledger.submit(fail.call())
    drain(ledger)
    with pytest.raises(WaitTimeoutError):
        receipt.wait(0.01, until_failed=False)
    failed = receipt.wait(0)
    assert (failed.state, failed.error_code) == (JobState.FAILED, "runtime_error")
    ledger.quarantine(receipt.job_id, "hopeless")
    assert receipt.wait(0).state is JobState.QUARANTINED


def test_submit_and_wait_in_async_code(ledger_url: str) -> None:
    async def scenario() -> tuple[Any, ...]:
        with Ledger(ledger_url) as ledger:

            @ledger.operation("add")
            async def add(run: Execution, a: int, b: int) -> int:
                await asyncio.sleep(0)
                return a + b

            receipt = await ledger.submit_async(add.call(2, b=3), client="c", key="k")
            named = await ledger.submit_async("add", {"a": 2, "b": 3}, client="c", key="k")
            with pytest.raises(WaitTimeoutError):
                await receipt.wait_async(0.01)
            made = await asyncio.to_thread(ledger.run_until_idle)
            done = await ledger.wait_async(receipt, 5)
            return named.is_new, named.job_id == receipt.job_id, made, done.result

    assert asyncio.run(scenario()) == (False, True, 1, 5)


@pytest.mark.req("K-15", "G-18")
def test_rulings_change_the_job_or_name_the_refusal(ledger: Ledger, clock: VirtualClock) -> None:
    @ledger.operation("fail", max_attempts=1)
    def fail(run: Execution) -> None:
        raise RuntimeError("no")

    failed, cancelled = ledger.submit(fail.call()).job_id, ledger.submit(fail.call(), run_at=clock.after(1)).job_id
    drain(ledger)
    assert ledger.cancel(cancelled, actor="ann", reason="not wanted") is JobState.QUARANTINED
    assert ledger.cancel(cancelled) is JobState.QUARANTINED  # it is already: nothing is written
    assert ledger.job(cancelled).quarantine_code == "cancelled"
    with ledger.store.reading() as reading:
        last = reading.journal.of(cancelled)[-1]
    assert (last.event, last.actor, last.reason, last.version) == ("cancel", "ann", "not wanted", 2)

    assert ledger.retry(failed) is JobState.PENDING
    drain(ledger)
    assert ledger.job(failed).attempts == 2
    assert ledger.quarantine(failed, "poison") is JobState.QUARANTINED
    with pytest.raises(InvalidStateTransitionError) as refused:
        ledger.retry(failed)
    assert refused.value.context == {"job_id": failed, "refusal": "wrong_state"}


def test_no_job_of_a_paused_queue_is_claimed(ledger: Ledger, echo: Operation[..., Any]) -> None:
    ledger.submit(echo.call(value=1))
    ledger.pause("talk", reason="maintenance")
    assert drain(ledger) == 0
    ledger.resume("talk")
    assert drain(ledger) == 1
    assert [(count.queue, count.state.value, count.n) for count in ledger.counts() if count.n] == [
        ("talk", "succeeded", 1)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Declaring


def test_operations_without_a_ledger(sqlite_url: str) -> None:
    operations = Operations()

    @operations.operation("double", max_attempts=2)
    def double(run: Execution, n: int) -> int:
        return 2 * n

    @operations.operation()
    def named_by_its_function(run: Execution) -> None: ...

    assert [operation.name for operation in operations] == ["double", "named_by_its_function"]
    with Ledger(sqlite_url, operations) as ledger:
        receipt = ledger.submit(double.call(n=21))
        assert ledger.run_until_idle() == 1
        assert receipt.wait(5).result == 42
    assert len(operations) == 3  # and noop


def test_an_invalid_declaration_is_refused_at_once() -> None:
    operations = Operations()

    def handler(run: Execution) -> None: ...

    operations.operation("one")(handler)
    senseless: list[tuple[str, Settings]] = [
        ("one", {}),
        ("not a name", {}),
        ("1st", {}),
        ("two", {"lease_s": 0}),
        ("two", {"timeout_s": -1}),
        ("two", {"max_attempts": 0}),
        ("two", {"max_attempts": 3, "retry": RetryPolicy(max_attempts=4)}),
    ]
    for name, settings in senseless:
        with pytest.raises(InputError):
            operations.operation(name, **settings)(handler)
    with pytest.raises(InputError) as refused:
        operations.operation("two")(lambda: None)  # type: ignore[arg-type, misc]
    assert refused.value.context == {"operation": "two"}
    with pytest.raises(InputError) as refused:
        operations.operation("two")(lambda run, *rest: None)
    assert refused.value.context == {"parameter": "rest"}
    assert len(operations) == 1


def test_an_operation_declared_after_the_ledger_was_opened_is_known_too(ledger: Ledger) -> None:
    assert ledger.submit("noop").is_new

    @ledger.operation("late")
    def late(run: Execution) -> str:
        return "better"

    receipt = ledger.submit(late.call())
    assert drain(ledger) == 2
    assert ledger.receipt(receipt.job_id).result == "better"
    with ledger.store.reading() as reading:
        assert sorted(reading.operations.declared()) == ["late", "noop"]


def test_times_with_any_zone_are_taken(ledger: Ledger, clock: VirtualClock, echo: Operation[..., Any]) -> None:
    from zoneinfo import ZoneInfo

    at = clock.after(3600).astimezone(ZoneInfo("Asia/Kathmandu"))
    receipt = ledger.submit(echo.call(value=1), run_at=at)
    assert ledger.job(receipt.job_id).run_at == at
    assert ledger.job(receipt.job_id).run_at.utcoffset() == timedelta(0)
    assert clock().tzinfo is UTC


def test_the_reason_of_a_quarantine_is_redacted_and_short(ledger: Ledger) -> None:
    receipt = ledger.submit("noop", {})
    ledger.quarantine(receipt.job_id, "suspect", reason="password=hunter2 " + "x" * 10_000)
    message = ledger.job(receipt.job_id).last_error_message
    assert message is not None
    assert message.startswith("password=*** xxx")
    assert len(message) == 500
