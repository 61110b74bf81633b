"""The public API used well: mypy, strict, finds nothing here. It is checked, never run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, assert_type

from holdfast import Call, Execution, FailureKind, Ledger, Operation, Operations, Receipt, RetryPolicy, Worker
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.testing import VirtualClock, begin, crash_at, drain, virtual_world

ledger = Ledger("work.db")
operations = Operations()


@ledger.operation("notify")
def notify(run: Execution, url: str, *, times: int = 1) -> None:
    assert_type(run.job, Job)
    assert_type(run.attempt, int)
    assert_type(run.cancelled, bool)


@ledger.operation("thumbnail", version="1.0.0", queue="images", priority=1, max_attempts=5, replay_attempts=2)
def thumbnail(run: Execution, path: str, width: int = 64) -> dict[str, int]:
    size = run.checkpoint("size", lambda: len(path))
    assert_type(size, int)
    run.progress(0.5, "rendered")
    run.effect("INSERT INTO thumbs(path) VALUES (:path)", {"path": path}, rows=1)
    run.effect("INSERT INTO thumbs(path) VALUES (?)", (path,))
    run.after_commit(notify.call("https://example.org", times=2))
    return {"bytes": size}


@operations.operation(lease_s=5, timeout_s=1.5, retry=RetryPolicy(base_s=1), classify=lambda error: FailureKind.UNKNOWN)
async def ask(run: Execution, question: str) -> str:
    return question


async def use() -> None:
    call = thumbnail.call("a.png", width=3)
    assert_type(call, Call[dict[str, int]])
    assert_type(thumbnail.call(path="a.png").keyed("web", "k").at(datetime.now(UTC)), Call[dict[str, int]])
    assert_type(ask.call(question="why?"), Call[str])  # what is awaited, not the coroutine
    receipt = ledger.submit(call, client="web", key="a", run_at=datetime.now(UTC), priority=1, queue="q")
    assert_type(receipt, Receipt[dict[str, int]])
    assert_type(receipt.result, dict[str, int])
    assert_type(ledger.submit(notify.call("https://example.org")).wait(1).result, None)
    assert_type(receipt.state, JobState)
    assert_type(ledger.submit("thumbnail", {"path": "a.png"}), Receipt[Any])
    assert_type(ledger.submit_many([call, thumbnail.call("b.png")])[0].result, dict[str, int])
    assert_type(ledger.submit_many([call.keyed("web", "b"), {"operation": "noop"}]), list[Receipt[Any]])
    assert_type(await ledger.submit_async(call, key="k"), Receipt[dict[str, int]])
    assert_type(await receipt.wait_async(1.0), Receipt[dict[str, int]])
    assert_type((await (await ledger.submit_async(ask.call("why?"))).wait_async()).result, str)
    assert_type(receipt.wait(timeout=1, until_failed=False).result, dict[str, int])
    assert_type(ledger.receipt(1), Receipt[Any])
    plain(call, receipt)
    assert_type(ledger.run_until_idle(), int)
    assert_type(ledger.perform(lambda transaction: transaction.queues.paused()), list[str])
    Worker(Ledger("work.db", operations), queues=["images"], concurrency=2).stop()
    with ledger.bound_to("other.db", world=virtual_world(VirtualClock())) as bound:
        assert_type(bound, Ledger)
        run = begin(bound, call)
        assert_type(thumbnail.fn(run, "a.png", 64), dict[str, int])
        assert_type(await ask.fn(run, "why?"), str)
        with crash_at("before_commit"):
            assert_type(drain(bound), int)


def plain(call: Call, receipt: Receipt) -> None:
    """Name both without a type: strict mypy does not ask for one."""
    assert_type(ledger.submit(call).result, Any)
    assert_type(receipt.result, Any)


def any_operation(operation: Operation[..., object]) -> str:
    return operation.name


any_operation(thumbnail)
any_operation(ask)
