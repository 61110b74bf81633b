"""A move is written whole or not at all, and no subscriber hears of it before it is written."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.compat import IdempotentJobQueue, JobStatus, StateMachineValidator
from holdfast.core.errors import StoreError
from holdfast.testing import VirtualClock
from tests.compat.actor import Memory, job
from tests.compat.conftest import Open
from tests.compat.support import everything, put, rows

Verb = Callable[[IdempotentJobQueue, VirtualClock], object]


class PowerCut(Exception):
    pass


def _expire(queue: IdempotentJobQueue, clock: VirtualClock) -> object:
    clock.advance(600)
    return queue.expire("a")


VERBS: dict[str, tuple[JobStatus, JobStatus, Verb]] = {
    "claim": (JobStatus.PENDING, JobStatus.RUNNING, lambda queue, _: queue.claim()),
    "mark_running": (JobStatus.PENDING, JobStatus.RUNNING, lambda queue, _: queue.mark_running("a")),
    "mark_completed": (JobStatus.RUNNING, JobStatus.SUCCEEDED, lambda queue, _: queue.mark_completed("a")),
    "mark_failed": (JobStatus.RUNNING, JobStatus.FAILED, lambda queue, _: queue.mark_failed("a")),
    "mark_quarantined": (JobStatus.FAILED, JobStatus.QUARANTINED, lambda queue, _: queue.mark_quarantined("a")),
    "cancel_job": (JobStatus.PENDING, JobStatus.QUARANTINED, lambda queue, _: queue.cancel_job("a")),
    "reschedule": (JobStatus.FAILED, JobStatus.PENDING, lambda queue, _: queue.reschedule("a")),
    "expire": (JobStatus.RUNNING, JobStatus.PENDING, _expire),
}


def _cut_after(queue: IdempotentJobQueue, statements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the transaction that writes run so many statements and then fail as if its process had died."""
    really, begin = queue.store.run, queue.store._begin
    left = {"statements": None}  # type: dict[str, int | None]

    def starting(connection: Any) -> None:
        begin(connection)
        left["statements"] = statements

    def running(connection: Any, name: str, params: Any) -> list[tuple[Any, ...]]:
        if left["statements"] == 0:
            raise PowerCut
        found = really(connection, name, params)
        if left["statements"] is not None:
            left["statements"] -= 1
        return found

    def committing(connection: Any) -> None:
        raise PowerCut

    monkeypatch.setattr(queue.store, "_begin", starting)
    monkeypatch.setattr(queue.store, "run", running)
    monkeypatch.setattr(queue.store, "_commit", committing)


@pytest.mark.req("G-10", "G-12", "G-26")
@pytest.mark.parametrize("name", VERBS)
def test_atomic_updates(opened: Open, ledger_url: str, clock: VirtualClock, name: str) -> None:
    source, target, verb = VERBS[name]
    audit = Memory()
    queue = opened(StateMachineValidator(audit))
    put(queue, source, "a")
    before, heard = everything(ledger_url), list(audit.events)
    # After every statement in turn, and at the commit: past the last one there is nothing left to cut.
    for statements in range(6):
        start = clock()
        with pytest.MonkeyPatch.context() as monkeypatch:
            _cut_after(queue, statements, monkeypatch)
            with pytest.raises((PowerCut, StoreError)):
                verb(queue, clock)
        assert everything(ledger_url) == before
        assert audit.events == heard
        clock.jump_to(start)
    verb(queue, clock)
    assert queue.get_job("a")["status"] is target
    assert len(audit.events) > len(heard)


@pytest.mark.req("G-10", "K-32")
def test_a_job_and_its_attempt_move_in_one_act(queue: IdempotentJobQueue, ledger_url: str) -> None:
    queue.enqueue(job("a"))
    queue.mark_running("a")
    queue.mark_failed("a")
    acts = rows(ledger_url, "SELECT move_id, machine, source, target FROM holdfast_edges ORDER BY seq, step")
    by_move = {move_id: {edge[1:] for edge in acts if edge[0] == move_id} for move_id, *_ in acts}
    assert [by_move[move_id] for move_id in dict.fromkeys(edge[0] for edge in acts)] == [
        {("JOB", None, "pending")},
        {("EXECUTION", None, "LEASED"), ("EXECUTION", "LEASED", "IN_PROGRESS"), ("JOB", "pending", "running")},
        {("EXECUTION", "IN_PROGRESS", "ABORTED"), ("JOB", "running", "failed")},
    ]


@pytest.mark.req("G-10", "G-19")
def test_no_status_is_written_past_the_table_from_a_shell(queue: IdempotentJobQueue, ledger_url: str) -> None:
    put(queue, JobStatus.SUCCEEDED, "a")
    before = everything(ledger_url)
    for statement in (
        "UPDATE holdfast_jobs SET state = 'pending'",
        "UPDATE holdfast_jobs SET state = 'failed', version = version + 1, event = 'fail', move_id = 'by hand'",
        "UPDATE holdfast_jobs SET attempts = 0",
        "DELETE FROM holdfast_jobs",
    ):
        with pytest.raises(Exception, match=r"HF00|holdfast_jobs_\w+_check"):
            rows(ledger_url, statement)
    assert everything(ledger_url) == before
