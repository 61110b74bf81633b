"""Guards of a replay: each refuses by its own type, with exit code 3 and a next step, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast.core.authority import Act, Reject
from holdfast.core.commands import Complete, Replay
from holdfast.core.errors import AuthorityError, InputError, PlanStaleError, ReplayGuardError, SpecInvalidError
from holdfast.core.machines import JobState
from holdfast.core.selection import Limits, Options, ReplayMode, Selection, Window
from holdfast.engine.events import Bus
from holdfast.governance import grants
from holdfast.governance.replay import replay
from holdfast.governance.replay.events import ReplayBatch, ReplayRefused
from holdfast.governance.replay.guards import GuardType, policy_of
from holdfast.governance.replay.record import ReplayReport
from holdfast.governance.replay.replay import DryRun
from holdfast.governance.replay.run import wanted
from holdfast.store import Store, Submission, open_store
from holdfast.testing import VirtualClock
from tests.governance.granting import approve_in_prod
from tests.governance.replays import AGAIN, WHO, checksum, claim, fill, on_both, replays, selection, states, work
from tests.support.ledgers import new_store

TYPES = [
    "env_mismatch",
    "scope_too_broad",
    "kill_switch_active",
    "selection_too_large",
    "attempts_exceeded",
    "slo_risk",
]


def throw(store: Store[Any], name: str) -> None:
    with store.transaction() as transaction:
        assert transaction.switches.throw(name, actor="bob", reason="it does harm")


def pause(store: Store[Any], queue: str) -> None:
    with store.transaction() as transaction:
        transaction.queues.pause(queue, actor="bob", reason="a rest")


def spend(store: Store[Any]) -> None:
    fill(store, 3, prefix="spent", queue="hrrr", max_attempts=1, replay_attempts=0)


def wait_long(store: Store[Any], clock: VirtualClock) -> None:
    with store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}", queue="goes-abi")])
    clock.advance(90.001)


def work_slowly(store: Store[Any], clock: VirtualClock, seconds: float, then: float = 0) -> None:
    """Make ten attempts of which three take so long; some time after, it is now."""
    job_ids = fill(store, 10, prefix="slow")
    with store.transaction() as transaction:
        jobs = transaction.jobs.get_many(job_ids)
        transaction.rulings.rule([(job, Replay("test", store.now())) for job in jobs], actor="a")
        attempts = claim(transaction, job_ids)
    for some, took in ((attempts[:7], 0.0), (attempts[7:], seconds)):
        clock.advance(took)
        with store.transaction() as transaction:
            transaction.executions.move([(a, Complete(a.execution.lease_token)) for a in some], actor="w")
    clock.advance(then)


class Case(msgspec.Struct, frozen=True):
    guard_type: str
    prepare: Callable[[Store[Any], VirtualClock], None] = lambda _store, _clock: None
    settings: dict[str, Any] = {}
    policy: dict[str, Any] = {}


CASES = {
    "another environment": Case("env_mismatch", settings={"env": "prod"}),
    "limits of another environment": Case("env_mismatch", policy={"environment": "stage"}),
    "no window": Case("scope_too_broad", settings={"filters": {"created_at": None}}),
    "a window without a start": Case("scope_too_broad", settings={"filters": {"created_at": Window()}}),
    "no status": Case("scope_too_broad", settings={"filters": {"status": ()}}),
    "all queues": Case("scope_too_broad", settings={"queues": ()}, policy={"allow_global_replay": False}),
    "too many records": Case("selection_too_large", policy={"max_selection_records": 4}),
    "too many batches": Case(
        "selection_too_large", settings={"limits": Limits(batch_size=2)}, policy={"max_batches": 2}
    ),
    "too large a batch": Case("selection_too_large", settings={"limits": Limits(batch_size=5_001)}),
    "all is spent": Case(
        "attempts_exceeded",
        lambda store, _: spend(store),
        {"queues": ("hrrr",), "filters": {"status": (JobState.FAILED, JobState.QUARANTINED)}},
    ),
    "the switch of all replays": Case("kill_switch_active", lambda store, _: throw(store, "replay")),
    "the switch of a queue": Case("kill_switch_active", lambda store, _: throw(store, "replay:goes-abi")),
    "the switch of a queue that has no candidate": Case(
        "kill_switch_active", lambda store, _: throw(store, "replay:mrms"), {"queues": ("mrms",)}
    ),
    "the switch of an operation": Case("kill_switch_active", lambda store, _: throw(store, "operation:noop")),
    "a paused queue": Case("kill_switch_active", lambda store, _: pause(store, "goes-abi")),
    "switches may not be ignored": Case(
        "kill_switch_active",
        settings={"options": Options(respect_kill_switch=False)},
        policy={"allow_ignoring_switches": False},
    ),
    "an old queue": Case("slo_risk", wait_long),
    "slow attempts": Case("slo_risk", lambda store, clock: work_slowly(store, clock, 300.001)),
}


@pytest.mark.req("K-55", "K-64")
@pytest.mark.parametrize(
    "ledger_url, name",
    on_both(CASES, "an old queue", "slow attempts", "the switch of a queue", "a paused queue"),
    indirect=["ledger_url"],
)
def test_each_guard_refuses_by_its_own_type_and_nothing_is_written(
    store: Store[Any], clock: VirtualClock, name: str
) -> None:
    case = CASES[name]
    fill(store, 5)
    case.prepare(store, clock)
    chosen = selection(store, **case.settings)
    policy = msgspec.structs.replace(policy_of("dev"), **case.policy)
    before = checksum(store)
    made = replay.dry_run(store, chosen, actor="ann", policy=policy)
    assert [guard.guard_type for guard in made.guards] == TYPES
    assert [guard.guard_type for guard in made.guards if not guard.passed] == [case.guard_type]
    assert not made.ok
    with pytest.raises(ReplayGuardError) as refused:
        replay.run(store, chosen, policy=policy, **WHO)
    error = refused.value
    assert (error.code, error.exit_code, error.context["guard_type"]) == (case.guard_type, 3, case.guard_type)
    assert error.hint
    assert error.hint == next(guard.next_step for guard in made.guards if not guard.passed)
    assert checksum(store) == before


@pytest.mark.req("K-55")
def test_every_guard_type_is_reached_by_a_case() -> None:
    assert {case.guard_type for case in CASES.values()} == set(GuardType) == set(TYPES)


HARMLESS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "another queue": (lambda store, _: throw(store, "replay:hrrr"), {}),
    "another operation": (lambda store, _: throw(store, "operation:other"), {}),
    "another paused queue": (lambda store, _: pause(store, "hrrr"), {}),
    "ignored": (lambda store, _: throw(store, "replay"), {"options": Options(respect_kill_switch=False)}),
    "some are spent": (lambda store, _: spend(store), {"queues": ("hrrr", "goes-abi")}),
    "not that slow": (lambda store, clock: work_slowly(store, clock, 299.0), {}),
    "slow long ago": (lambda store, clock: work_slowly(store, clock, 301.0, then=901.0), {}),
    "named records": (lambda *_: None, {"filters": {"created_at": None, "jobs": ("1", "2")}}),
}


@pytest.mark.req("K-55")
@pytest.mark.parametrize("ledger_url, name", on_both(HARMLESS, "slow long ago"), indirect=["ledger_url"])
def test_conditions_of_other_queues_or_within_limits_do_not_refuse(
    store: Store[Any], clock: VirtualClock, name: str
) -> None:
    prepare, settings = HARMLESS[name]
    fill(store, 2)
    prepare(store, clock)
    chosen = selection(store, **settings)
    assert replay.dry_run(store, chosen, actor="ann").ok
    assert replay.run(store, chosen, sleep=clock.advance, **WHO).replayed == 2


@pytest.mark.req("K-55")
def test_limits_are_stricter_from_dev_to_stage_to_prod() -> None:
    dev, stage, prod = (policy_of(name) for name in ("dev", "stage", "prod"))
    for name in (
        "max_selection_records", "max_batches", "max_records_per_second", "max_batches_per_minute",
        "backfill_records_per_second", "grant_above",
    ):  # fmt: skip
        assert getattr(dev, name) > getattr(stage, name) > getattr(prod, name), name
    assert (dev.allow_global_replay, stage.allow_global_replay, prod.allow_global_replay) == (True, False, False)
    assert (dev.bounded_window, stage.bounded_window, prod.bounded_window) == (False, False, True)
    assert (prod.allow_ignoring_switches, prod.grant_above) == (False, 0)
    assert {(p.queue_age_s, p.latency_p90_s) for p in (dev, stage, prod)} == {(90.0, 300.0)}
    assert 500 <= prod.batch_size <= prod.max_batch_size == 2000


@pytest.mark.req("K-55", "K-64")
def test_a_dry_run_changes_nothing_and_survives_being_saved(store: Store[Any]) -> None:
    fill(store, 5)
    fill(store, 2, prefix="spent", max_attempts=1, replay_attempts=0)
    chosen = selection(store, filters={"status": (JobState.FAILED, JobState.QUARANTINED)}, limits=Limits(batch_size=2))
    before = checksum(store)
    made = replay.dry_run(store, chosen, actor="ann")
    assert checksum(store) == before
    assert made.ok
    assert (made.total, made.batch_size, made.batches, made.skipped) == (5, 2, 3, {"attempts_exceeded": 2})
    assert (made.environment, made.grant_needed, made.authority, made.made_at) == (
        "dev", False, "NOT_NEEDED", store.now(),
    )  # fmt: skip
    assert (made.selection_hash, made.candidates_hash) == (chosen.hash, replay.select(store, chosen).hash)
    assert msgspec.json.decode(msgspec.json.encode(made), type=DryRun) == made


@pytest.mark.req("K-54")
def test_a_run_on_a_saved_dry_run_is_refused_if_its_candidates_changed(store: Store[Any], clock: VirtualClock) -> None:
    fill(store, 3)
    chosen = selection(store)
    made = replay.dry_run(store, chosen, actor="ann")
    fill(store, 1, prefix="later")
    before = checksum(store)
    for expected, requested, what in [
        (made, chosen, "set of candidates"),
        (replay.dry_run(store, chosen, actor="ann"), selection(store, labels={"ticket": "7"}), "selection"),
        (msgspec.structs.replace(made, ledger_id="another"), chosen, "ledger"),
    ]:
        with pytest.raises(PlanStaleError) as refused:
            replay.run(store, requested, expected=expected, **WHO)
        assert (refused.value.context["what"], refused.value.exit_code) == (what, 3)
    assert checksum(store) == before
    saved = msgspec.json.encode(replay.dry_run(store, chosen, actor="ann"))
    report = replay.run(store, chosen, expected=msgspec.json.decode(saved, type=DryRun), sleep=clock.advance, **WHO)
    assert (report.replayed, report.state) == (4, "done")


@pytest.mark.req("K-55")
def test_replays_in_flight_are_bounded_for_a_dataset_and_in_all(store: Store[Any], clock: VirtualClock) -> None:
    """While one runs, another of its queue is refused; one of another queue is not, until there are too many."""
    for queue in ("goes-abi", "hrrr", "gfs"):
        fill(store, 4, queue=queue)
    policy = msgspec.structs.replace(policy_of("dev"), max_runs=2)
    seen: list[tuple[str, str]] = []

    def run(queue: str, on_batch: Callable[[ReplayBatch], None] | None = None) -> ReplayReport:
        chosen = selection(store, queues=(queue,), limits=Limits(batch_size=2))
        return replay.run(store, chosen, policy=policy, on_batch=on_batch, sleep=clock.advance, **WHO)

    def refused(queue: str) -> None:
        with pytest.raises(ReplayGuardError) as error:
            run(queue)
        seen.append((error.value.code, error.value.message))

    def inside_the_second(batch: ReplayBatch) -> None:
        if batch.number == 1:
            refused("gfs")

    def inside_the_first(batch: ReplayBatch) -> None:
        if batch.number == 1:
            refused("goes-abi")
            assert run("hrrr", inside_the_second).replayed == 4

    report = run("goes-abi", inside_the_first)
    assert (report.replayed, states(store)) == (4, {"failed": 4, "pending": 8})
    assert [code for code, _ in seen] == ["slo_risk", "slo_risk"]
    assert report.run_id in seen[0][1]  # the first is refused for the replay of its queue
    assert report.run_id not in seen[1][1]  # the second for the number of replays
    assert run("gfs").replayed == 4


def approve(store: Store[Any], chosen: Selection, *, executor: str = "ann") -> int:
    made = replay.dry_run(store, chosen, actor=executor)
    act = wanted(chosen, made.candidates_hash, environment=made.environment, executor=executor)
    grant = grants.request(
        store, act, requester=executor, rollback_plan="quarantine what was put back", reason="the disk was full"
    )
    approve_in_prod(store, grant.grant_id, reason="looked at it")
    return grant.grant_id


@pytest.mark.req("K-55", "K-50", "K-57")
def test_in_prod_every_run_needs_a_grant_for_exactly_its_candidates(prod_url: str, clock: VirtualClock) -> None:
    with open_store(prod_url, clock) as store:
        fill(store, 3)
        chosen = selection(store, env="prod")
        before = checksum(store)
        for policy in (None, msgspec.structs.replace(policy_of("prod"), grant_above=10**9)):
            with pytest.raises(AuthorityError) as refused:
                replay.run(store, chosen, policy=policy, **WHO)
            assert refused.value.code == Reject.MISSING
        assert checksum(store) == before
        assert replay.dry_run(store, chosen, actor="ann").authority == "REJECT_AUTH_MISSING"
        grant_id = approve(store, chosen)
        assert replay.dry_run(store, chosen, actor="ann").authority == "GO"
        fill(store, 1, prefix="later")
        with pytest.raises(AuthorityError) as refused:
            replay.run(store, chosen, grant_id=grant_id, **WHO)
        assert refused.value.code == Reject.WRONG_CARRIER
        assert replays(store) == {}
        grant_id = approve(store, chosen)
        with pytest.raises(AuthorityError) as refused:
            replay.run(store, chosen, grant_id=grant_id, **{**WHO, "actor": "eve"})
        assert refused.value.code == Reject.WRONG_EXECUTOR
        report = replay.run(store, chosen, grant_id=grant_id, sleep=clock.advance, **WHO)
        assert (report.replayed, report.grant_id, report.state) == (4, grant_id, "done")
        with store.reading() as reading:
            grant = reading.grants.get(grant_id)
            assert grant is not None
            assert (grant.state, grant.action, grant.target) == (
                "consumed", "replay.run", f"replay:{report.candidates_hash}",
            )  # fmt: skip
        # What is left is nothing, and nothing needs no grant.
        again = replay.run(store, chosen, **WHO)
        assert (again.replayed, again.total, again.state, again.grant_id) == (0, 0, "done", None)


@pytest.mark.req("K-55")
def test_in_prod_a_replay_of_all_queues_needs_an_override_and_a_grant(prod_url: str, clock: VirtualClock) -> None:
    with open_store(prod_url, clock) as store:
        fill(store, 2)
        fill(store, 2, queue="hrrr")
        chosen = selection(store, env="prod", queues=())
        with pytest.raises(ReplayGuardError) as refused:
            replay.run(store, chosen, **WHO)
        assert refused.value.code == "scope_too_broad"
        override = msgspec.structs.replace(policy_of("prod"), allow_global_replay=True)
        with pytest.raises(AuthorityError) as missing:
            replay.run(store, chosen, policy=override, **WHO)
        assert missing.value.code == Reject.MISSING
        grant_id = approve(store, chosen)
        report = replay.run(store, chosen, policy=override, grant_id=grant_id, sleep=clock.advance, **WHO)
        assert (report.replayed, report.grant_id) == (4, grant_id)
        # A window that is open at one end is too broad in prod.
        open_end = selection(store, env="prod", filters={"created_at": Window(store.now() - timedelta(days=1))})
        with pytest.raises(ReplayGuardError) as refused:
            replay.run(store, open_end, **WHO)
        assert refused.value.code == "scope_too_broad"


@pytest.mark.req("K-55")
def test_in_stage_a_large_run_needs_a_grant(sqlite_url: str, clock: VirtualClock) -> None:
    with new_store(sqlite_url, clock, environment="stage") as store:
        fill(store, 3)
        small = selection(store, env="stage", limits=Limits(max_records=1))
        policy = msgspec.structs.replace(policy_of("stage"), grant_above=1)
        assert replay.run(store, small, policy=policy, sleep=clock.advance, **WHO).grant_id is None
        with pytest.raises(AuthorityError) as refused:
            replay.run(store, selection(store, env="stage"), policy=policy, **WHO)
        assert refused.value.code == Reject.MISSING


@pytest.mark.req("K-55", "K-57")
def test_in_dev_a_large_run_gets_a_grant_of_its_own_on_record(local: Store[Any], clock: VirtualClock) -> None:
    fill(local, 3)
    policy = msgspec.structs.replace(policy_of("dev"), grant_above=2)
    report = replay.run(local, selection(local), policy=policy, sleep=clock.advance, **WHO)
    with local.reading() as reading:
        [grant] = reading.grants.page()
    assert (report.grant_id, grant.action, grant.state, grant.approved_by) == (
        grant.grant_id, Act.REPLAY, "consumed", "ann",
    )  # fmt: skip


@pytest.mark.req("K-53")
@pytest.mark.parametrize(
    "error, settings, who",
    [
        (InputError, {}, {"actor": " "}),
        (InputError, {}, {"reason": ""}),
        (InputError, {}, {"replay_reason": "because"}),
        (InputError, {}, {"stop_after": 0}),
        (SpecInvalidError, {"mode": ReplayMode.REPAIR_AND_REPLACE}, {}),
        (SpecInvalidError, {"limits": Limits(batch_size=0)}, {}),
        (SpecInvalidError, {"limits": Limits(max_records=-1)}, {}),
    ],
)
def test_bad_input_is_refused_before_the_ledger_is_read(
    local: Store[Any], error: type[InputError], settings: dict[str, Any], who: dict[str, Any]
) -> None:
    fill(local, 1)
    before = checksum(local)
    with pytest.raises(error) as refused:
        replay.run(local, selection(local, **settings), **{**WHO, **who})
    assert refused.value.exit_code == 2
    assert checksum(local) == before


def test_a_refusal_is_published_to_subscribers(local: Store[Any]) -> None:
    fill(local, 1)
    throw(local, "replay")
    bus = Bus()
    heard: list[ReplayRefused] = []
    subscription = bus.subscribe(heard.append, ReplayRefused)
    with pytest.raises(ReplayGuardError):
        replay.run(local, selection(local), bus=bus, **WHO)
    assert subscription.flush()
    subscription.close()
    assert heard == [ReplayRefused(guard_type="kill_switch_active", environment="dev", at=local.now())]


def test_a_switch_is_checked_again_when_a_run_is_continued(local: Store[Any], clock: VirtualClock) -> None:
    fill(local, 4)
    chosen = selection(local, limits=Limits(batch_size=2))
    report = replay.run(local, chosen, stop_after=1, sleep=clock.advance, **WHO)
    throw(local, "replay:goes-abi")
    before = checksum(local)
    with pytest.raises(ReplayGuardError) as refused:
        replay.continue_run(local, report.run_id, **AGAIN)
    assert refused.value.code == "kill_switch_active"
    assert checksum(local) == before
    assert states(local) == {"failed": 2, "pending": 2}
    assert work(local) == 2
