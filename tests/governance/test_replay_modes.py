"""Modes of a replay: a backfill has a capacity of its own; a repair replaces jobs by new ones that name them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.audit.check.runner import check
from holdfast.core.authority import Reject
from holdfast.core.commands import Complete, Replay
from holdfast.core.errors import AuthorityError
from holdfast.core.machines import JobState
from holdfast.core.selection import Limits, Options, ReplayMode, Selection
from holdfast.engine.world import Crash, World
from holdfast.governance import grants
from holdfast.governance.approval import Identity
from holdfast.governance.registry.supersede import retire, supersede
from holdfast.governance.replay import replay
from holdfast.governance.replay.run import wanted
from holdfast.store import Declared, Store, Submission
from holdfast.testing import VirtualClock
from tests.governance.replays import AGAIN, WHO, claim, dev, fail, fill, on_both, replays, selection, states, work
from tests.governance.successions import governed
from tests.support.ledgers import new_store


def repair(store: Store[Any], **settings: Any) -> Selection:
    """Return a selection of everything that has ended, to be replaced."""
    return selection(
        store,
        mode=ReplayMode.REPAIR_AND_REPLACE,
        options=Options(allow_repair_and_replace=True),
        filters={"status": (JobState.SUCCEEDED, JobState.QUARANTINED)},
        **settings,
    )


def succeed(store: Store[Any], n: int, **settings: Any) -> list[int]:
    """Add jobs that have succeeded, each with its own id as its result."""
    job_ids = fill(store, n, prefix="ok", **settings)
    with store.transaction() as transaction:
        transaction.rulings.rule(
            [(job, Replay("test", store.now())) for job in transaction.jobs.get_many(job_ids)], actor="a"
        )
        moves = [(a, Complete(a.execution.lease_token, str(a.job.job_id))) for a in claim(transaction, job_ids)]
        transaction.executions.move(moves, actor="w")
    return job_ids


# ---------------------------------------------------------------------------------------------------------------------
# Backfill


@pytest.mark.req("K-51", "K-14")
def test_a_backfill_goes_at_its_own_rate_and_spreads_its_jobs(store: Store[Any], clock: VirtualClock) -> None:
    made = fill(store, 6)
    policy = dev(backfill_records_per_second=0.5)
    chosen = selection(store, mode=ReplayMode.BACKFILL, limits=Limits(batch_size=3))
    assert replay.dry_run(store, chosen, actor="ann", policy=policy).seconds_at_least == 6.0
    report = replay.run(store, chosen, policy=policy, sleep=clock.advance, **WHO)
    assert (report.mode, report.replay_reason, report.replayed) == ("backfill", "backfill", 6)
    first, second = replay.inspect(store, report.run_id).touched
    assert second.at - first.at == timedelta(seconds=6)
    with store.reading() as reading:
        jobs = reading.jobs.get_many(made)
    assert {job.replay_reason for job in jobs} == {"backfill"}
    begun = first.at
    assert [(job.run_at - begun).total_seconds() for job in jobs] == [0, 2, 4, 6, 8, 10]
    assert work(store) == 4  # it is six seconds later: two are not due yet


# ---------------------------------------------------------------------------------------------------------------------
# Repair and replace


@pytest.mark.req("K-16", "K-17", "K-51", "K-57")
def test_quarantined_jobs_are_replaced_by_new_jobs_that_name_them(store: Store[Any], clock: VirtualClock) -> None:
    old = fill(store, 3, permanent=True, payload='{"n":1}', priority=4, max_attempts=7)
    report = replay.run(store, repair(store, limits=Limits(batch_size=2)), sleep=clock.advance, **WHO)
    assert (report.state, report.replayed, report.batches, report.mode) == ("done", 3, 2, "repair-and-replace")
    pairs = {o: n for batch in replay.inspect(store, report.run_id).touched for o, n in batch.replaced.items()}
    assert sorted(pairs) == old
    with store.reading() as reading:
        grant = reading.grants.get(report.grant_id or 0)
        assert grant is not None
        assert (grant.action, grant.state) == ("replay.replace", "consumed")
        for before, after in zip(reading.jobs.get_many(old), reading.jobs.get_many(pairs.values()), strict=True):
            assert (before.state, after.state, after.replaces) == ("quarantined", "pending", before.job_id)
            same = ("operation", "payload", "digest", "client", "queue", "priority", "max_attempts", "replay_attempts")
            assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
            assert after.key == f"{before.key}#{report.run_id}"
            [born] = reading.journal.of(after.job_id)
            assert (born.event, born.actor) == ("submit", "ann")
            assert born.reason == f"replay {report.run_id}: the disk was full"
    assert replays(store) == {}
    assert check(store).violations == ()


def test_a_followup_is_replaced_under_the_reserved_client(store: Store[Any], clock: VirtualClock) -> None:
    [parent] = succeed(store, 1)
    with store.transaction() as transaction:
        staged = Submission(
            operation="noop", payload="{}", client="holdfast", key=f"{parent}/1", queue="goes-abi", by_engine=True
        )
        [admission] = transaction.jobs.submit([staged])
        fail(transaction, claim(transaction, [admission.job_id]), permanent=True)
    report = replay.run(store, repair(store), sleep=clock.advance, **WHO)
    assert report.replayed == 1
    with store.reading() as reading:
        [old, new] = reading.lists.jobs(client="holdfast", limit=2)[::-1]
    assert (old.key, new.key, new.replaces) == (f"{parent}/1", f"{parent}/1#{report.run_id}", old.job_id)
    assert check(store).violations == ()


@pytest.mark.req("K-50", "K-51")
def test_nothing_is_replaced_twice(store: Store[Any], clock: VirtualClock) -> None:
    old = fill(store, 3, permanent=True)
    chosen = repair(store)
    assert replay.run(store, chosen, sleep=clock.advance, **WHO).replayed == 3
    again = replay.run(store, chosen, sleep=clock.advance, **WHO)
    assert (again.total, again.replayed) == (0, 0)
    assert replay.select(store, chosen).skipped == {"already_replaced": 3}
    # A replacement that went wrong too is itself replaced; what it replaced stays as it is.
    with store.transaction() as transaction:
        fail(transaction, claim(transaction, [old[-1] + 1]), permanent=True)
    found = replay.select(store, chosen)
    assert (found.job_ids, found.skipped) == ([old[-1] + 1], {"already_replaced": 3})


@pytest.mark.req("K-58")
def test_a_succeeded_job_is_replaced_only_by_a_newer_version(store: Store[Any], clock: VirtualClock) -> None:
    old = succeed(store, 2, operation="ingest", operation_version="1.1.0")
    chosen = repair(store)
    assert replay.select(store, chosen).skipped == {"version_downgrade": 2}  # it is declared at 1.0.0
    with store.transaction() as transaction:
        transaction.operations.declare({"ingest": Declared(version="1.1.0")})
    assert replay.select(store, chosen).skipped == {"replay_hit": 2}
    assert replay.run(store, chosen, sleep=clock.advance, **WHO).total == 0
    with store.transaction() as transaction:
        transaction.operations.declare({"ingest": Declared(version="1.2.0")})
    report = replay.run(store, chosen, sleep=clock.advance, **WHO)
    assert report.replayed == 2
    with store.reading() as reading:
        assert [(job.operation_version, job.state.value) for job in reading.jobs.get_many(old)] == [
            ("1.1.0", "succeeded")
        ] * 2
        [new] = {job.operation_version for job in reading.jobs.get_many([old[-1] + 1, old[-1] + 2])}
    assert new == "1.2.0"


@pytest.mark.req("K-61")
def test_the_same_version_with_another_result_is_a_mismatch(local: Store[Any], clock: VirtualClock) -> None:
    old = succeed(local, 3)
    report = replay.run(local, repair(local), policy=dev(allow_same_version=True), sleep=clock.advance, **WHO)
    [batch] = replay.inspect(local, report.run_id).touched
    new = [batch.replaced[job_id] for job_id in old]
    with local.transaction() as transaction:
        attempts = claim(transaction, new[:2])
        results = {new[0]: str(old[0]), new[1]: "another"}
        transaction.executions.move(
            [(a, Complete(a.execution.lease_token, results[a.job.job_id])) for a in attempts], actor="w"
        )
    assert replay.inspect(local, report.run_id).mismatched == [(old[1], new[1])]


@pytest.mark.req("K-17", "K-51")
def test_outside_dev_a_replacement_needs_a_grant(sqlite_url: str, clock: VirtualClock) -> None:
    with new_store(sqlite_url, clock, environment="stage") as store:
        fill(store, 1, permanent=True)
        chosen = repair(store, env="stage")
        made = replay.dry_run(store, chosen, actor="ann")
        assert (made.ok, made.grant_needed, made.authority) == (True, True, "REJECT_AUTH_MISSING")
        with pytest.raises(AuthorityError) as refused:
            replay.run(store, chosen, **WHO)
        assert refused.value.code == Reject.MISSING
        assert states(store) == {"quarantined": 1}
        act = wanted(chosen, made.candidates_hash, environment="stage", executor="ann")
        grant = grants.request(store, act, requester="ann", rollback_plan="cancel the new ones", reason="a test")
        grants.approve(store, grant.grant_id, Identity(name="bob"))
        report = replay.run(store, chosen, expected=made, sleep=clock.advance, **WHO)
        assert (report.replayed, report.grant_id) == (1, grant.grant_id)


@pytest.mark.req("K-50")
@pytest.mark.parametrize(
    "ledger_url, point",
    on_both(["inside batch 1", "after batch 1", "inside batch 2", "after batch 2"], "inside batch 2"),
    indirect=["ledger_url"],
)
def test_a_repair_that_dies_is_continued_and_replaces_nothing_twice(
    store: Store[Any], clock: VirtualClock, point: str
) -> None:
    old = fill(store, 3, permanent=True)
    chosen = repair(store, limits=Limits(batch_size=2))

    def reach(here: str) -> None:
        if here == point:
            raise Crash(point)

    with pytest.raises(Crash):
        replay.run(store, chosen, world=World(reach=reach), sleep=clock.advance, **WHO)
    clock.advance(60)
    with store.reading() as reading:
        runs = reading.runs.page(procedure="replay")
    if runs:
        report = replay.continue_run(store, runs[0].idempotency_root, sleep=clock.advance, **AGAIN)
    else:
        report = replay.run(store, chosen, sleep=clock.advance, **WHO)
    assert (report.state, report.replayed) == ("done", 3)
    with store.reading() as reading:
        rows = reading.execute("SELECT replaces FROM holdfast_calls WHERE replaces IS NOT NULL ORDER BY job_id")
        assert [row[0] for row in rows] == old
        assert [grant.state for grant in reading.grants.page()] == ["consumed"]


def test_a_very_long_key_is_not_made_longer(local: Store[Any], clock: VirtualClock) -> None:
    [old] = fill(local, 1, permanent=True, prefix="k" * 1000)
    report = replay.run(local, repair(local), sleep=clock.advance, **WHO)
    with local.reading() as reading:
        assert reading.jobs.get(old + 1).key == f"{old}#{report.run_id}"


@pytest.mark.req("K-50", "L-16")
def test_where_a_registry_governs_a_job_is_replaced_at_the_version_in_force(
    governed_url: str, clock: VirtualClock
) -> None:
    with governed(governed_url, clock=clock) as store:
        shipped = fill(store, 2, operation="ship", permanent=True)
        packed = fill(store, 1, operation="pack", prefix="p", permanent=True)
        supersede(store, "ship", "1.0.0", "1.1.0", actor="ann", reason="a test")
        retire(store, "pack", "1.0.0", actor="ann", reason="a test")
        found = replay.select(store, repair(store))
        assert (found.job_ids, found.skipped) == (shipped, {"not_in_force": 1})
        report = replay.run(store, repair(store), sleep=clock.advance, **WHO)
        [batch] = replay.inspect(store, report.run_id).touched
        with store.reading() as reading:
            new = reading.jobs.get_many(batch.replaced.values())
        assert [(job.replaces, job.operation_version) for job in new] == [(job_id, "1.1.0") for job_id in shipped]
        assert packed[0] not in batch.replaced
