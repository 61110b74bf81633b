"""Runs of a replay: bounded batches within the rate, stopped, crashed and continued, none replayed twice, on record."""

from __future__ import annotations

from datetime import timedelta
from itertools import combinations, count
from typing import Any

import msgspec
import pytest

from holdfast.audit.check.runner import check
from holdfast.core.authority import Reject
from holdfast.core.commands import Cancel, Complete, Replay
from holdfast.core.errors import (
    AuthorityError,
    InputError,
    InvalidStateTransitionError,
    RecordNotFoundError,
    RefusedByDatabaseError,
    RuntimeLeaseError,
    StoreDamagedError,
)
from holdfast.core.records import time_text
from holdfast.core.selection import Limits
from holdfast.engine.events import Bus, Transition
from holdfast.engine.world import Crash, World
from holdfast.governance import grants
from holdfast.governance.approval import Identity
from holdfast.governance.replay import replay
from holdfast.governance.replay.events import ReplayBatch
from holdfast.governance.replay.guards import ReplayPolicy, policy_of
from holdfast.governance.replay.record import ReplayReport
from holdfast.governance.replay.run import wanted
from holdfast.store import Store, open_store
from holdfast.store.verbs.rulings import RulingWrites
from holdfast.testing import VirtualClock
from tests.governance.replays import AGAIN, WHO, claim, dev, fail, fill, on_both, replays, selection, states, work
from tests.support.ledgers import new_store

TWO: Any = {"limits": Limits(batch_size=2)}


def crashing(*points: str) -> World:
    def reach(here: str) -> None:
        if here in points:
            raise Crash(here)

    return World(reach=reach)


def within_the_rate(report: ReplayReport, policy: ReplayPolicy) -> bool:
    """Return whether, between any two batches, no more was replayed than the rate allows."""
    touched = report.touched
    return all(
        sum(len(batch.replayed) for batch in touched[i:j])
        <= policy.max_records_per_second * (touched[j].at - touched[i].at).total_seconds() + 1e-6
        and j - i <= policy.max_batches_per_minute * (touched[j].at - touched[i].at).total_seconds() / 60 + 1e-6
        for i, j in combinations(range(len(touched)), 2)
    )


def large(store: Store[Any], clock: VirtualClock, n: int, batch_size: int, *, working: bool) -> None:
    """Replay many jobs, killed half-way and stopped later, perhaps while workers keep up."""
    made = fill(store, n)
    spent = fill(store, 50, prefix="spent", max_attempts=1, replay_attempts=0)
    policy = dev(max_records_per_second=200, max_batches_per_minute=60, grant_above=n)
    chosen = selection(store, limits=Limits(batch_size=batch_size), filters={"status": ("failed", "quarantined")})
    batches = -(-n // batch_size)
    half = batches // 2
    going: Any = {"sleep": clock.advance, "on_batch": (lambda _: work(store)) if working else None}
    with pytest.raises(Crash):
        replay.run(store, chosen, policy=policy, world=crashing(f"inside batch {half}"), **going, **WHO)
    with store.reading() as reading:
        [run] = reading.runs.page(procedure="replay")
    run_id = run.idempotency_root
    assert (run.state, run.step, len(replays(store))) == ("running", half - 1, (half - 1) * batch_size)
    with pytest.raises(RuntimeLeaseError):
        replay.continue_run(store, run_id, **AGAIN)
    clock.advance(policy.lease_s)
    stopped = replay.continue_run(store, run_id, stop_after=2, **going, **AGAIN)
    assert (stopped.state, stopped.stop_reason, stopped.batches) == ("stopped", "STOPPED_BY_OPERATOR", half + 1)
    done = replay.continue_run(store, run_id, **going, **AGAIN)
    assert (done.state, done.replayed, done.batches, done.skipped) == ("done", n, batches, {})
    assert done.throttled == {"rate": batches - 2}  # neither the first batch nor the one after the crash had to wait
    assert replays(store) == dict.fromkeys(made, 1)
    assert states(store) == {"quarantined": len(spent), "succeeded" if working else "pending": n}
    inspected = replay.inspect(store, run_id)
    assert [job_id for batch in inspected.touched for job_id in batch.replayed] == made
    assert [len(batch.replayed) for batch in inspected.touched[:-1]] == [batch_size] * (batches - 1)
    assert within_the_rate(inspected, policy)
    left = replay.select(store, chosen)
    assert (left.total, left.skipped) == (0, {"attempts_exceeded": len(spent)})


@pytest.mark.req("K-50", "K-55", "K-57", "K-64")
def test_many_are_replayed_in_batches_within_the_rate_and_none_twice(store: Store[Any], clock: VirtualClock) -> None:
    large(store, clock, 2_500, 250, working=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.req("K-50", "K-55", "K-57", "K-64")
def test_a_hundred_thousand_are_replayed_in_batches_within_the_rate_and_none_twice(
    store: Store[Any], clock: VirtualClock
) -> None:
    large(store, clock, 100_000, 2_000, working=True)


POINTS = [f"{moment} batch {number}" for number in (1, 2, 3) for moment in ("before", "inside", "after")]


@pytest.mark.req("K-50", "K-64")
@pytest.mark.parametrize(
    "ledger_url, point", on_both(POINTS, "inside batch 1", "inside batch 2", "after batch 3"), indirect=["ledger_url"]
)
def test_a_run_that_dies_anywhere_is_continued_to_the_same_end(
    store: Store[Any], clock: VirtualClock, point: str
) -> None:
    made = fill(store, 5)
    chosen = selection(store, **TWO)
    with pytest.raises(Crash):
        replay.run(store, chosen, world=crashing(point), sleep=clock.advance, **WHO)
    clock.advance(60)
    with store.reading() as reading:
        runs = reading.runs.page(procedure="replay")
    if runs:
        report = replay.continue_run(store, runs[0].idempotency_root, sleep=clock.advance, **AGAIN)
    else:
        assert point in ("before batch 1", "inside batch 1")
        assert replays(store) == {}
        report = replay.run(store, chosen, sleep=clock.advance, **WHO)
    assert (report.state, report.replayed, report.batches, report.skipped) == ("done", 5, 3, {})
    assert replays(store) == dict.fromkeys(made, 1)
    assert check(store).violations == ()
    with store.reading() as reading:
        assert len(reading.runs.page(procedure="replay")) == 1
        assert all(lease.expires_at <= store.now() for lease in reading.leases.all().values())


@pytest.mark.req("K-50", "K-64")
def test_the_same_selection_twice_is_safe(store: Store[Any], clock: VirtualClock) -> None:
    made = fill(store, 5)
    chosen = selection(store, **TWO)
    first = replay.run(store, chosen, sleep=clock.advance, **WHO)
    for _ in range(2):
        again = replay.run(store, chosen, sleep=clock.advance, **WHO)
        assert (again.state, again.total, again.replayed, again.batches) == ("done", 0, 0, 0)
        assert again.run_id != first.run_id
    assert replays(store) == dict.fromkeys(made, 1)
    assert work(store) == 5
    assert replay.run(store, chosen, sleep=clock.advance, **WHO).replayed == 0
    assert replay.continue_run(store, first.run_id, **AGAIN) == replay.inspect(store, first.run_id, limit=0)
    assert replays(store) == dict.fromkeys(made, 1)


@pytest.mark.req("K-14", "K-57", "K-60", "K-62")
def test_a_replay_is_journalled_and_published(store: Store[Any], clock: VirtualClock) -> None:
    made = fill(store, 3)
    bus = Bus()
    heard: list[Any] = []
    subscriptions = [bus.subscribe(heard.append, Transition), bus.subscribe(heard.append, ReplayBatch)]
    chosen = selection(store, **TWO)
    report = replay.run(store, chosen, sleep=clock.advance, bus=bus, **WHO)
    with store.reading() as reading:
        jobs = reading.jobs.get_many(made)
        moves = [reading.journal.of(job_id)[-1] for job_id in made]
        run = reading.runs.get(report.run_id)
        assert run is not None
        evidence = reading.runs.evidence(run.run_id)
        assert [row.event for row in reading.journal.of(run.run_id, "PROCEDURE")] == ["plan", "run", "finish"]
    assert {(job.replay_reason, job.state.value, job.last_error_code) for job in jobs} == {
        ("incident", "pending", "io_error")
    }
    assert {(move.event, move.actor, move.reason) for move in moves} == {
        ("replay", "ann", f"replay {report.run_id}: the disk was full")
    }
    assert (run.actor, run.reason, run.plan, run.lease) == (
        "ann", "the disk was full", chosen.hash, f"replay:{report.run_id}",
    )  # fmt: skip
    assert [(e.kind, e.subject, e.content) for e in evidence] == [
        ("candidates", f"replay:{report.candidates_hash}", f'{{"3":"{made[0]}-{made[-1]}"}}')
    ]
    assert (report.actor, report.reason, report.replay_reason, report.selection) == (
        "ann", "the disk was full", "incident", chosen,
    )  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(report), type=ReplayReport) == report
    inspected = replay.inspect(store, report.run_id)
    assert [(batch.number, batch.replayed, batch.skipped) for batch in inspected.touched] == [
        (1, made[:2], {}), (2, made[2:], {}),
    ]  # fmt: skip
    assert [batch.number for batch in replay.inspect(store, report.run_id, after=1).touched] == [2]
    assert [batch.number for batch in replay.inspect(store, report.run_id, limit=1).touched] == [1]
    for subscription in subscriptions:
        assert subscription.flush()
        subscription.close()
    moved = [event for event in heard if isinstance(event, Transition)]
    assert [(event.job_id, event.event, event.source, event.target, event.actor) for event in moved] == [
        (job_id, "replay", "failed", "pending", "ann") for job_id in made
    ]
    batches = [event for event in heard if isinstance(event, ReplayBatch)]
    assert [(b.run_id, b.number, b.batches, b.replayed, b.skipped, b.environment, b.throttled) for b in batches] == [
        (report.run_id, 1, 2, {"goes-abi": 2}, {}, "dev", {}),
        (report.run_id, 2, 2, {"goes-abi": 1}, {}, "dev", {"rate": 1}),
    ]


@pytest.mark.req("K-50", "K-55", "K-58")
def test_jobs_changed_since_the_selection_are_skipped_and_counted(store: Store[Any], clock: VirtualClock) -> None:
    """A job that another has replayed, worked on, cancelled or failed again is not what was selected any more."""
    first, second, replayed, done, cancelled, failed_again, *rest = fill(store, 8)

    def meddle(batch: ReplayBatch) -> None:
        if batch.number > 1:
            return
        clock.advance(1)
        with store.transaction() as transaction:
            by_others = [replayed, done, failed_again]
            transaction.rulings.rule(
                [(job, Replay("test", store.now())) for job in transaction.jobs.get_many(by_others)], actor="o"
            )
            transaction.rulings.rule([(transaction.jobs.get(cancelled), Cancel())], actor="o")
            fail(transaction, claim(transaction, [failed_again]))
        with store.transaction() as transaction:
            [attempt] = claim(transaction, [done])
            transaction.executions.move([(attempt, Complete(attempt.execution.lease_token))], actor="w")

    report = replay.run(store, selection(store, **TWO), on_batch=meddle, sleep=clock.advance, **WHO)
    assert (report.replayed, report.skipped) == (4, {"replay_hit": 1, "state_changed": 3})
    inspected = replay.inspect(store, report.run_id)
    assert [batch.replayed for batch in inspected.touched] == [[first, second], [], [], rest]
    assert [batch.skipped for batch in inspected.touched[1:]] == [
        {"replay_hit": [done], "state_changed": [replayed]}, {"state_changed": [cancelled, failed_again]}, {},
    ]  # fmt: skip
    assert replays(store) == dict.fromkeys([first, second, replayed, done, failed_again, *rest], 1)
    # What failed again is a candidate of another run.
    assert replay.select(store, selection(store)).job_ids == [failed_again]


@pytest.mark.req("K-55")
def test_a_job_that_moves_at_the_same_moment_is_counted_as_a_conflict(
    store: Store[Any], clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch has read the job and decided; before it writes, the job has another version."""
    one, two = fill(store, 2)
    rule = RulingWrites.rule

    def racing(self: RulingWrites, rulings: Any, **named: Any) -> Any:
        if named["reason"].startswith("replay "):
            rule(self, [(self._session.jobs.get(one), Replay("test", store.now()))], actor="other", reason="faster")
        return rule(self, rulings, **named)

    monkeypatch.setattr(RulingWrites, "rule", racing)
    report = replay.run(store, selection(store), sleep=clock.advance, **WHO)
    assert (report.replayed, report.skipped, report.state) == (1, {"conflict": 1}, "done")
    assert replay.inspect(store, report.run_id).touched[0].replayed == [two]
    assert replays(store) == {one: 1, two: 1}


# ---------------------------------------------------------------------------------------------------------------------
# Stopping and slowing down


@pytest.mark.req("K-55")
@pytest.mark.parametrize(
    "ledger_url, name",
    on_both(["replay", "replay:goes-abi", "operation:noop", "a pause"], "replay:goes-abi"),
    indirect=["ledger_url"],
)
def test_a_switch_that_is_thrown_stops_a_run_before_its_next_batch(
    store: Store[Any], clock: VirtualClock, name: str
) -> None:
    fill(store, 6)

    def throw(batch: ReplayBatch) -> None:
        if batch.number == 2:
            with store.transaction() as transaction:
                if name == "a pause":
                    transaction.queues.pause("goes-abi", actor="bob", reason="it does harm")
                else:
                    transaction.switches.throw(name, actor="bob", reason="it does harm")

    report = replay.run(store, selection(store, **TWO), on_batch=throw, sleep=clock.advance, **WHO)
    assert (report.state, report.stop_reason, report.replayed) == ("stopped", "KILL_SWITCH", 4)
    assert ("goes-abi" if name == "a pause" else name) in str(report.failure)
    assert states(store) == {"failed": 2, "pending": 4}


@pytest.mark.req("K-55", "K-65")
def test_a_run_waits_while_its_queue_is_old_and_stops_if_it_stays_so(store: Store[Any], clock: VirtualClock) -> None:
    fill(store, 6)
    policy = dev(max_batches_per_minute=0.5, slow_down_s=10, slow_downs_max=3)
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        clock.advance(seconds)
        if len(naps) == 9:
            work(store)  # the workers come back while the second batch waits: after 120 s of rate and 30 s more

    chosen = selection(store, **TWO)
    report = replay.run(store, chosen, policy=policy, sleep=sleep, **WHO)
    # Batch 2 waits 120 s for its rate, in naps of 20 s, and then, as the queue is 120 s old, 10 s at a time.
    assert naps[:9] == [20.0] * 6 + [10.0] * 3
    assert report.throttled == {"queue_age": 3, "rate": 1}
    # Batch 3 finds the queue old again, and no worker runs.
    assert naps[9:] == [20.0] * 6 + [10.0] * 3
    assert (report.state, report.stop_reason, report.batches) == ("stopped", "SLO_RISK", 2)
    assert {"150", "90"} <= set(str(report.failure).split())
    assert states(store) == {"failed": 2, "pending": 2, "succeeded": 2}
    work(store)
    done = replay.continue_run(store, report.run_id, sleep=clock.advance, **AGAIN)
    assert (done.state, done.replayed, done.stop_reason, done.failure) == ("done", 6, None, None)


@pytest.mark.req("K-56")
def test_a_run_stops_when_the_same_error_occurs_again(store: Store[Any], clock: VirtualClock) -> None:
    fill(store, 80, code="schema_mismatch")
    policy = dev(same_error_min=20, same_error_share=0.5)
    chosen = selection(store, limits=Limits(batch_size=20))
    work_off = {1: None, 2: "schema_mismatch", 3: "schema_mismatch", 4: None}

    def worker(batch: ReplayBatch) -> None:
        assert work(store, code=work_off[batch.number]) == 20

    report = replay.run(store, chosen, policy=policy, on_batch=worker, sleep=clock.advance, **WHO)
    # After the second batch it is one half of what has ended, which is not yet more than the share.
    assert (report.state, report.stop_reason, report.batches) == ("stopped", "SAME_ERROR", 3)
    assert {"40", "60"} <= set(str(report.failure).split())
    # A continued run starts a new count: errors from before do not stop it.
    done = replay.continue_run(store, report.run_id, on_batch=worker, sleep=clock.advance, **AGAIN)
    assert (done.state, done.batches, done.replayed) == ("done", 4, 80)
    other = fill(store, 40, queue="hrrr", code="io_error")
    another_error = replay.run(
        store, selection(store, queues=("hrrr",), limits=Limits(batch_size=20)), policy=policy,
        on_batch=lambda _: work(store, "hrrr", code="validation_failed"), sleep=clock.advance, **WHO,
    )  # fmt: skip
    assert (another_error.state, another_error.replayed) == ("done", len(other))


@pytest.mark.req("K-55")
def test_a_run_can_be_stopped_from_outside_and_by_hand(store: Store[Any], clock: VirtualClock) -> None:
    fill(store, 8)
    chosen = selection(store, **TWO)

    def from_outside(batch: ReplayBatch) -> None:
        if batch.number == 1:
            stopped = replay.stop(store, batch.run_id, actor="bob", reason="enough")
            assert (stopped.state, stopped.failure) == ("stopped", "enough")

    report = replay.run(store, chosen, on_batch=from_outside, sleep=clock.advance, **WHO)
    assert (report.state, report.stop_reason, report.failure, report.batches) == (
        "stopped", "STOPPED_BY_OPERATOR", "enough", 1,
    )  # fmt: skip
    with pytest.raises(InvalidStateTransitionError):
        replay.stop(store, report.run_id, actor="bob", reason="once more")

    def by_hand(_batch: ReplayBatch) -> None:
        raise KeyboardInterrupt

    report = replay.continue_run(store, report.run_id, on_batch=by_hand, sleep=clock.advance, **AGAIN)
    assert (report.state, report.stop_reason, report.batches) == ("stopped", "STOPPED_BY_OPERATOR", 2)
    # At once: a stopped run returns its lease.
    report = replay.continue_run(store, report.run_id, sleep=clock.advance, **AGAIN)
    assert (report.state, report.batches, report.replayed) == ("done", 4, 8)
    with pytest.raises(InvalidStateTransitionError):
        replay.stop(store, report.run_id, actor="bob", reason="too late")


@pytest.mark.req("K-50")
def test_a_callback_that_raises_leaves_a_run_that_can_be_continued_at_once(
    local: Store[Any], clock: VirtualClock
) -> None:
    fill(local, 4)

    def broken(_batch: ReplayBatch) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        replay.run(local, selection(local, **TWO), on_batch=broken, sleep=clock.advance, **WHO)
    with local.reading() as reading:
        [run] = reading.runs.page()
    report = replay.continue_run(local, run.idempotency_root, sleep=clock.advance, **AGAIN)
    assert (report.state, report.replayed) == ("done", 4)
    with local.reading() as reading:
        events = [(row.event, row.actor) for row in reading.journal.of(run.run_id, "PROCEDURE")]
    assert [event for event, _ in events] == ["plan", "run", "abort", "resume", "finish"]


@pytest.mark.req("K-50")
def test_a_runner_that_lost_its_lease_writes_nothing_more(store: Store[Any], clock: VirtualClock) -> None:
    made = fill(store, 6)

    def overtaken(batch: ReplayBatch) -> None:
        if batch.number == 1:
            clock.advance(61)
            other = replay.continue_run(store, batch.run_id, stop_after=1, sleep=clock.advance, **AGAIN)
            assert other.batches == 2

    with pytest.raises(RuntimeLeaseError):
        replay.run(store, selection(store, **TWO), on_batch=overtaken, sleep=clock.advance, **WHO)
    assert replays(store) == dict.fromkeys(made[:4], 1)


class Granted:
    """A replay in stage that needs a grant for each actor."""

    def __init__(self, store: Store[Any], clock: VirtualClock, jobs: int) -> None:
        fill(store, jobs)
        self.store, self.clock = store, clock
        self.chosen = selection(store, env="stage", **TWO)
        self.digest = replay.select(store, self.chosen).hash

    def approve(self, executor: str) -> int:
        act = wanted(self.chosen, self.digest, environment="stage", executor=executor)
        grant = grants.request(self.store, act, requester=executor, rollback_plan="none", reason="a test")
        return grants.approve(self.store, grant.grant_id, Identity(name="carl")).grant_id

    def begin(self) -> ReplayReport:
        policy = msgspec.structs.replace(policy_of("stage"), grant_above=0)
        return replay.run(self.store, self.chosen, policy=policy, stop_after=1, sleep=self.clock.advance, **WHO)

    def take_up(self, run_id: str, actor: str, **given: Any) -> ReplayReport:
        return replay.continue_run(self.store, run_id, actor=actor, reason="a test", sleep=self.clock.advance, **given)


@pytest.mark.req("K-57", "L-13")
def test_another_operator_continues_a_granted_run_only_under_an_own_grant(stage_url: str, clock: VirtualClock) -> None:
    with open_store(stage_url, clock) as store:
        granted = Granted(store, clock, jobs=4)
        first = granted.approve("ann")
        report = granted.begin()
        assert report.grant_id == first
        with pytest.raises(AuthorityError) as refused:
            granted.take_up(report.run_id, "bob")
        assert refused.value.code == Reject.MISSING
        second = granted.approve("bob")
        report = granted.take_up(report.run_id, "bob")
        assert (report.state, report.replayed, report.grant_id) == ("done", 4, second)


@pytest.mark.req("L-10", "L-13")
def test_a_consumed_grant_does_not_continue_the_run_of_another_operator(stage_url: str, clock: VirtualClock) -> None:
    """Ann consumed the grant with which the run began; since then it is a run of Bob's."""
    with open_store(stage_url, clock) as store:
        granted = Granted(store, clock, jobs=6)
        first = granted.approve("ann")
        report = granted.begin()
        second = granted.approve("bob")
        report = granted.take_up(report.run_id, "bob", stop_after=1)
        assert report.grant_id == second
        replayed = replays(store)
        for grant_id in (first, second):
            with pytest.raises(AuthorityError) as refused:
                granted.take_up(report.run_id, "ann", grant_id=grant_id)
            assert refused.value.code == Reject.ALREADY_CONSUMED
        with pytest.raises(AuthorityError) as refused:
            granted.take_up(report.run_id, "ann")
        assert refused.value.code == Reject.MISSING
        assert replays(store) == replayed


def test_a_secret_in_a_reason_is_not_kept(local: Store[Any], clock: VirtualClock) -> None:
    [job_id] = fill(local, 1)
    who = {**WHO, "reason": "after password=hunter2 was changed"}
    report = replay.run(local, selection(local), sleep=clock.advance, **who)
    with local.reading() as reading:
        reason = reading.journal.of(job_id)[-1].reason
    assert reason == f"replay {report.run_id}: after password=*** was changed"
    assert report.reason == "after password=*** was changed"


def test_a_run_that_is_not_known_or_no_replay_is_refused(local: Store[Any]) -> None:
    for act in (replay.inspect, lambda *a: replay.continue_run(*a, **AGAIN), lambda *a: replay.stop(*a, **AGAIN)):
        with pytest.raises(RecordNotFoundError):
            act(local, "nothing")
    with local.transaction() as transaction:
        transaction.runs.begin(
            "other", "build", params="{}", plan="", lease="", grant_id=None, actor="ann", reason="a test"
        )
    with pytest.raises(InputError):
        replay.inspect(local, "other")


def test_a_run_with_altered_candidates_is_not_continued(sqlite_url: str, clock: VirtualClock) -> None:
    with new_store(sqlite_url, clock) as store:
        fill(store, 4)
        report = replay.run(store, selection(store, **TWO), stop_after=1, sleep=clock.advance, **WHO)
        alter = 'UPDATE holdfast_evidence SET content = \'{"3":"1-3"}\''
        with pytest.raises(RefusedByDatabaseError), store.transaction() as transaction:
            transaction.execute(alter)
        with store.transaction() as transaction:
            transaction.execute("DROP TRIGGER holdfast_evidence_update")
            transaction.execute(alter)
        with pytest.raises(StoreDamagedError):
            replay.continue_run(store, report.run_id, **AGAIN)
        assert states(store) == {"failed": 2, "pending": 2}


def test_a_clock_that_stands_still_is_an_error_and_not_an_endless_wait(local: Store[Any]) -> None:
    fill(local, 3)
    with pytest.raises(InputError) as refused:
        replay.run(local, selection(local, **TWO), sleep=lambda _: None, **WHO)
    assert refused.value.context == {"now": time_text(local.now())}


def test_two_worlds_with_the_same_names_give_their_runs_different_ids(local: Store[Any], clock: VirtualClock) -> None:
    run_ids = []
    for n in range(2):
        fill(local, 1, prefix=f"{n}")
        names = count(1)
        world = World(new_name=lambda names=names: f"virtual-{next(names)}")  # type: ignore[misc]
        run_ids.append(replay.run(local, selection(local), world=world, sleep=clock.advance, **WHO).run_id)
    assert run_ids == ["replay-virtual-1", "replay-virtual-2"]


def test_the_rate_holds_over_a_stop(local: Store[Any], clock: VirtualClock) -> None:
    fill(local, 4)
    policy = dev(max_batches_per_minute=6)
    chosen = selection(local, **TWO)
    report = replay.run(local, chosen, policy=policy, stop_after=1, sleep=clock.advance, **WHO)
    clock.advance(4)
    replay.continue_run(local, report.run_id, sleep=clock.advance, **AGAIN)
    first, second = replay.inspect(local, report.run_id).touched
    assert second.at - first.at == timedelta(seconds=10)
