"""Findings of the overview about attempts that hang and jobs that kill their process, on both databases."""

from __future__ import annotations

from datetime import timedelta

from holdfast import Ledger
from holdfast.console.views.failures import failure_groups
from holdfast.console.views.needs import HANGS, RETRIED_MANY, Need
from holdfast.console.views.overview import ledger_of, overview
from holdfast.console.views.queues import FAILING, QueueRow, QueueStatus
from holdfast.core.commands import Fail
from holdfast.engine.worker.reaper import recover
from holdfast.scheduling.limits import Limits
from holdfast.store import Lease
from holdfast.testing import VirtualClock, virtual_world


def needs(ledger: Ledger) -> dict[str, Need]:
    """Return the findings of the overview by their code."""
    with ledger.store.reading() as reading:
        now = ledger.store.now()
        found = overview(reading, failure_groups(reading, now), ledger_of(reading, "sqlite:///x.db"), now).needs
    return {need.code: need for need in found}


def queue_of(ledger: Ledger, name: str) -> QueueRow:
    """Return the row of a queue on the overview."""
    with ledger.store.reading() as reading:
        now = ledger.store.now()
        found = overview(reading, failure_groups(reading, now), ledger_of(reading, "sqlite:///x.db"), now).queues
    return next(row for row in found if row.name == name)


def full(ledger: Ledger) -> list[int]:
    """Return three jobs, of which a worker with two slots holds the first two."""
    ids = [ledger.submit("noop", queue="geo").job_id for _ in range(3)]
    with ledger.store.transaction() as transaction:
        transaction.executions.claim_these(ids[:2], Lease(owner="geo/1", seconds=3600))
        transaction.workers.seen("geo/1", ("geo",), ("noop",), 2)
    return ids


def seen(ledger: Ledger) -> None:
    with ledger.store.transaction() as transaction:
        transaction.workers.seen("geo/1", ("geo",), ("noop",), 2)


def test_slots_that_are_held_for_long_are_not_said_to_need_more_workers(ledger_url: str) -> None:
    clock = VirtualClock()
    with Ledger(ledger_url, create=False, world=virtual_world(clock)) as ledger:
        first, *_ = full(ledger)
        clock.advance(timedelta(minutes=2).total_seconds())
        seen(ledger)
        found = needs(ledger)
        assert {"falls_behind", "slots_held"} & found.keys() == {"falls_behind"}
        assert "/workers?queue=geo" in [link.href for link in found["falls_behind"].links]
        clock.advance(HANGS.total_seconds())
        seen(ledger)
        found = needs(ledger)
        assert {"falls_behind", "slots_held"} & found.keys() == {"slots_held"}
        assert [link.href for link in found["slots_held"].links[:2]] == [f"/jobs/{first}", f"/jobs/{first}/revoke"]
        assert found["slots_held"].mono == "geo/1"


def test_one_job_that_lost_its_process_twice_is_named(ledger_url: str) -> None:
    clock = VirtualClock()
    with Ledger(ledger_url, create=False, world=virtual_world(clock)) as ledger:
        job_id = ledger.submit("noop", queue="geo").job_id
        for lost in range(3):
            assert ("kills_process" in needs(ledger)) is (lost >= 2), lost
            with ledger.store.transaction() as transaction:
                transaction.executions.claim_these([job_id], Lease(owner=f"geo/{lost}", seconds=1))
            clock.advance(30)
            recover(ledger, actor="test")
            clock.advance(600)
        found = needs(ledger)["kills_process"]
        assert [link.href for link in found.links] == [f"/jobs/{job_id}", f"/jobs/{job_id}/quarantine"]
        ledger.quarantine(job_id, "poison", reason="it kills its worker")
        assert "kills_process" not in needs(ledger)


def test_a_queue_whose_free_slots_start_nothing_does_not_keep_up(ledger_url: str) -> None:
    """Ended attempts leave their handlers in the slots: the ledger counts these slots as free."""
    clock = VirtualClock()
    with Ledger(ledger_url, create=False, world=virtual_world(clock)) as ledger:
        first, second, _ = full(ledger)
        clock.advance(HANGS.total_seconds())
        seen(ledger)
        for job_id in (first, second):
            ledger.revoke(job_id, reason="it hangs")
        clock.advance(timedelta(minutes=4).total_seconds())
        seen(ledger)
        found = needs(ledger)["nothing_starts"]
        assert [link.href for link in found.links] == ["/workers?queue=geo", "/queues/geo"]
        assert found.mono == "geo/1"
        with ledger.store.transaction() as transaction:  # a new worker takes one: work goes on
            transaction.executions.claim_these([second], Lease(owner="geo/2", seconds=3600))
        assert "nothing_starts" not in needs(ledger)


def test_jobs_that_a_limit_or_a_switch_holds_back_are_no_queue_that_starts_nothing(ledger_url: str) -> None:
    clock = VirtualClock()
    with Ledger(ledger_url, create=False, world=virtual_world(clock)) as ledger:
        ledger.submit("noop", queue="geo")
        seen(ledger)
        clock.advance(timedelta(minutes=4).total_seconds())
        seen(ledger)
        assert "nothing_starts" in needs(ledger)
        Limits(ledger).set("queue:geo", running=1, reason="slow down")
        assert "nothing_starts" not in needs(ledger)


def test_a_queue_whose_failed_jobs_were_all_put_right_is_not_failing(ledger_url: str) -> None:
    with Ledger(ledger_url, create=False) as ledger:
        ids = [ledger.submit("noop", queue="pay").job_id for _ in range(FAILING)]
        with ledger.store.transaction() as transaction:
            held = transaction.executions.claim_these(ids, Lease(owner="pay/1", seconds=600))
            fails = [(one, Fail(one.execution.lease_token, "http_401", "the key expired")) for one in held]
            transaction.executions.move(fails, actor="pay/1")
        assert queue_of(ledger, "pay").status is QueueStatus.FAILING
        for job_id in ids:
            ledger.retry(job_id, reason="the key was renewed")
        assert queue_of(ledger, "pay").status is not QueueStatus.FAILING
        assert queue_of(ledger, "pay").failed_hour == FAILING


def test_without_a_worker_no_queue_is_said_to_keep_up(ledger_url: str) -> None:
    with Ledger(ledger_url, create=False) as ledger, ledger.store.reading() as reading:
        now = ledger.store.now()
        found = overview(reading, failure_groups(reading, now), ledger_of(reading, "sqlite:///x.db"), now)
        assert (found.workers_alive, [words for words in found.fine if "keep" in words]) == (0, [])


def test_retries_are_no_finding_once_their_jobs_have_ended(ledger_url: str) -> None:
    clock = VirtualClock()
    with Ledger(ledger_url, create=False, world=virtual_world(clock)) as ledger:
        ids = [ledger.submit("noop", queue="crm").job_id for _ in range(RETRIED_MANY)]
        with ledger.store.transaction() as transaction:
            held = transaction.executions.claim_these(ids, Lease(owner="crm/1", seconds=600))
            fails = [
                (one, Fail(one.execution.lease_token, "http_503", "down", retry_at=ledger.store.now())) for one in held
            ]
            transaction.executions.move(fails, actor="crm/1")
        assert "retrying" in needs(ledger)
        for job_id in ids:
            ledger.cancel(job_id, reason="not needed")
        assert "retrying" not in needs(ledger)
