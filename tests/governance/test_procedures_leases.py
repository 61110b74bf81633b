"""Runs beside each other: one lease, one grant, one root; a refused run writes nothing, a dead one is taken over."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast.core.errors import (
    AuthorityError,
    GovernanceError,
    IdempotencyConflictError,
    RuntimeLeaseError,
    StoreBusyError,
    StoreUnavailableError,
)
from holdfast.engine.world import Crash
from holdfast.governance.approval import Identity
from holdfast.governance.grants import approve, request
from holdfast.governance.runs.procedure import resume, run, undo
from holdfast.governance.runs.steps import Mode, Procedure, Step, StepContext, procedure
from holdfast.store import Store, open_store
from holdfast.testing import VirtualClock
from tests.governance.shelves import LOOK, WHO, books, crashing, everything, fill, hooked, make, put
from tests.support.roles import wait_until

REAL: Any = {**WHO, "mode": Mode.REAL_RUN}
BOB: Any = {"actor": "bob", "reason": "on call"}


@pytest.fixture
def store(ledger_url: str, clock: VirtualClock) -> Iterator[Store[Any]]:
    with make(ledger_url, clock) as store:
        yield store


def interrupted(store: Store[Any], point: str, root: str = "r", what: Procedure = fill, **more: Any) -> None:
    with pytest.raises(Crash):
        run(store, what, {}, root=root, world=crashing(point), **{**REAL, **more})


# ---------------------------------------------------------------------------------------------------------------------
# The lease


@pytest.mark.req("L-04", "L-14")
def test_while_one_holds_the_lease_another_is_refused_and_has_written_nothing(store: Store[Any]) -> None:
    interrupted(store, "after PUT_A")
    before = everything(store)
    for root, who in (("s", REAL), ("s", {**REAL, "actor": "bob"}), ("r", {**REAL, "actor": "bob"})):
        with pytest.raises(RuntimeLeaseError) as caught:
            run(store, fill, {}, root=root, **who)
        held = {"lease": "procedure:fill", "holder": "ann/r", "expired": False}
        assert caught.value.context == {**held, "root": root, "stop_state": "ABORT_NO_LEASE"}
        rehearsed = run(store, fill, {}, root=root, **{**who, "mode": Mode.DRY_RUN})
        assert (rehearsed.verdict, rehearsed.ok) == ("ABORT_NO_LEASE", False)
        assert str(rehearsed.failure).startswith("RuntimeLeaseError: ")
        assert "ann/r" in str(rehearsed.failure)
    assert everything(store) == before


def test_runs_on_different_targets_run_at_the_same_time(store: Store[Any]) -> None:
    @procedure("each", target=lambda params: f"shelf:{params['shelf']}")
    def each() -> Iterator[Step]:
        yield from map(put, "AB")

    with pytest.raises(Crash):
        run(store, each, {"shelf": 1}, root="one", world=crashing("after PUT_A"), **REAL)
    assert run(store, each, {"shelf": 2}, root="two", **REAL).verdict == "DONE"
    assert resume(store, each, root="one", **WHO).verdict == "DONE"
    assert books(store) == ["A", "A", "B", "B"]


@pytest.mark.req("L-08", "L-14")
def test_a_step_that_outlives_its_lease_keeps_it(store: Store[Any], clock: VirtualClock) -> None:
    """A step is one transaction: the lease cannot be taken during it, and is extended when it ends."""

    def slow(_: StepContext) -> None:
        clock.advance(3600)

    what = Procedure(name="p", version="1.0.0", lease_s=10, steps=(put("A"), Step("B", slow, stop="X"), put("C")))
    taken: list[int | None] = []

    def other() -> None:
        with store.transaction() as transaction:
            taken.append(transaction.leases.acquire("procedure:p", "somebody", 10))

    report = run(store, what, {}, root="r", world=hooked("after B", other), **REAL)
    assert (report.verdict, report.counts, books(store)) == ("DONE", {"performed": 4}, ["A", "C"])
    assert taken == [None]


@pytest.mark.req("L-14")
def test_a_run_that_slept_continues_unless_another_took_its_lease(store: Store[Any], clock: VirtualClock) -> None:
    report = run(store, fill, {}, root="r", world=hooked("after PUT_A", lambda: clock.advance(3600)), **REAL)
    assert (report.verdict, books(store)) == ("DONE", ["A", "B", "C"])

    def had_by_another() -> None:
        clock.advance(3600)
        with store.transaction() as transaction:
            token = transaction.leases.acquire("procedure:fill", "somebody", 10)
            assert token is not None
            assert transaction.leases.release("procedure:fill", "somebody", token)
        clock.advance(1)

    with pytest.raises(RuntimeLeaseError) as caught:
        run(store, fill, {"room": 3}, root="s", world=hooked("after PUT_A", had_by_another), **REAL)
    assert (caught.value.context["lease"], caught.value.context["expired"]) == ("procedure:fill", True)
    assert books(store) == ["A", "A", "B", "C"]
    assert resume(store, fill, root="s", **WHO).counts == {"skipped": 3, "performed": 2}
    assert books(store) == ["A", "A", "B", "B", "C", "C"]


@pytest.mark.req("L-08")
def test_two_runners_of_one_root_do_each_step_once(store: Store[Any]) -> None:
    """The second does the whole run while the first is between two steps; the first then finds it done."""

    def whole() -> None:
        assert run(store, fill, {}, root="r", **REAL).verdict == "DONE"

    report = run(store, fill, {}, root="r", world=hooked("after PUT_A", whole), **REAL)
    assert (report.verdict, report.state, books(store)) == ("DONE", "done", ["A", "B", "C"])
    with store.reading() as reading:
        assert len(reading.grants.page()) == 1
        assert [lease for lease in reading.leases.all().values() if lease.expires_at > reading.now()] == []


@pytest.mark.req("L-08")
def test_a_run_that_another_runner_has_begun_meanwhile_is_shared(store: Store[Any]) -> None:
    another = hooked("before S1_RESERVED", lambda: interrupted(store, "after PUT_A"))
    report = run(store, fill, {}, root="r", world=another, **REAL)
    assert (report.verdict, report.counts, books(store)) == ("DONE", {"skipped": 3, "performed": 2}, ["A", "B", "C"])
    with store.reading() as reading:
        assert len(reading.grants.page()) == 1


@pytest.mark.req("L-08")
def test_a_failure_of_a_step_that_another_runner_performed_does_not_stop_the_run(store: Store[Any]) -> None:
    tries: list[int] = []

    def flaky(at: StepContext) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("the network is away")
        at.effect("INSERT INTO shelf (book) VALUES ('B')", rows=1)

    what = Procedure(name="p", version="1", steps=(put("A"), Step("B", flaky, stop="COMP_B"), put("C")))

    def another() -> None:
        assert run(store, what, {}, root="r", **REAL).verdict == "DONE"

    report = run(store, what, {}, root="r", world=hooked("before COMP_B", another), **REAL)
    assert (report.verdict, report.state, report.failure, books(store)) == ("DONE", "done", None, ["A", "B", "C"])


@pytest.mark.req("L-08")
def test_a_step_that_another_runner_has_performed_meanwhile_is_not_failed(store: Store[Any]) -> None:
    tries: list[int] = []

    def flaky(at: StepContext) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("the network is away")
        at.effect("INSERT INTO shelf (book) VALUES ('B')", rows=1)

    what = Procedure(name="p", version="1", steps=(put("A"), Step("B", flaky, stop="COMP_B"), put("C")))
    another = hooked("before COMP_B", lambda: interrupted(store, "after B", what=what))
    report = run(store, what, {}, root="r", world=another, **REAL)
    assert (report.verdict, report.state, books(store)) == ("DONE", "done", ["A", "B", "C"])
    assert len(tries) == 2


@pytest.mark.req("L-08", "L-14")
@pytest.mark.parametrize("point", ["before checks", "before S1_RESERVED"])
@pytest.mark.parametrize("params, verdict, left", [({}, "DONE", "ABC"), ({"fails": "C"}, "COMP_C", "")])
def test_a_run_that_another_runner_has_ended_before_this_one_began_is_left_alone(
    store: Store[Any], point: str, params: dict[str, str], verdict: str, left: str
) -> None:
    before: list[Any] = []

    def whole() -> None:
        assert run(store, fill, params, root="r", **REAL).verdict == verdict
        before.append(everything(store))

    report = run(store, fill, params, root="r", world=hooked(point, whole), **REAL)
    assert (report.verdict, books(store)) == (verdict, list(left))
    assert [everything(store)] == before


@pytest.mark.req("L-08", "L-14")
def test_a_stopped_run_that_another_runner_takes_up_first_is_left_to_that_one(store: Store[Any]) -> None:
    interrupted(store, "after PUT_A")
    undo(store, fill, root="r", **WHO)
    before: list[Any] = []

    def whole() -> None:
        assert resume(store, fill, root="r", **WHO).counts == {"performed": 5}
        before.append(everything(store))

    report = run(store, fill, {}, root="r", world=hooked("before S1_RESERVED", whole), **REAL)
    assert (report.verdict, report.counts, [everything(store)]) == ("DONE", {"skipped": 5}, before)


@pytest.mark.req("L-08", "L-14")
def test_a_run_that_another_runner_has_ended_needs_no_lease_any_more(store: Store[Any]) -> None:
    def ended_and_the_lease_taken() -> None:
        assert run(store, fill, {}, root="r", **REAL).verdict == "DONE"
        interrupted(store, "after S1_RESERVED", root="s")

    world = hooked("after PUT_A", ended_and_the_lease_taken)
    assert run(store, fill, {}, root="r", world=world, **REAL).verdict == "DONE"
    assert books(store) == ["A", "B", "C"]


@pytest.mark.req("L-13", "L-14")
def test_no_run_begins_while_another_is_unfinished(store: Store[Any], clock: VirtualClock) -> None:
    interrupted(store, "after PUT_A")
    clock.advance(3600)
    before = everything(store)
    for mode in (Mode.DRY_RUN, Mode.REAL_RUN):
        with pytest.raises(GovernanceError) as caught:
            run(store, fill, {}, root="s", **{**WHO, "mode": mode})
        assert (caught.value.code, caught.value.context["root"]) == ("run_unfinished", "r")
    assert everything(store) == before
    undo(store, fill, root="r", **BOB)
    assert run(store, fill, {}, root="s", **REAL).verdict == "DONE"
    assert books(store) == ["A", "B", "C"]


# ---------------------------------------------------------------------------------------------------------------------
# The grant


@pytest.mark.req("L-10", "L-12")
def test_another_operator_takes_over_a_run_under_an_own_grant(store: Store[Any], clock: VirtualClock) -> None:
    interrupted(store, "after PUT_A")
    clock.advance(3600)
    report = resume(store, fill, root="r", **BOB)
    assert (report.verdict, report.counts, books(store)) == ("DONE", {"skipped": 3, "performed": 2}, ["A", "B", "C"])
    with store.reading() as reading:
        grants = {grant.grant_id: (str(grant.state), grant.consumed_by) for grant in reading.grants.page()}
        known = reading.runs.get("r")
        assert known is not None
        assert sorted(grants.values()) == [("consumed", "ann"), ("consumed", "bob")]
        assert grants[known.grant_id or 0] == ("consumed", "bob")
        events = [(row.event, row.actor, row.reason) for row in reading.journal.of(known.run_id, "PROCEDURE")]
    assert events == [
        ("plan", "ann", "a test"), ("run", "ann", "a test"), ("abort", "bob", "taken over by bob: on call"),
        ("resume", "bob", "on call"), ("finish", "bob", "on call"),
    ]  # fmt: skip


def stage(url: str, clock: VirtualClock) -> Store[Any]:
    return make(url, clock, environment="stage")


def granted(store: Store[Any], executor: str, params: dict[str, Any] | None = None) -> int:
    wanted = fill.wanted(params or {}, "stage", executor)
    assert wanted is not None
    draft = request(store, wanted, requester=executor, rollback_plan="take the books away", reason="books")
    return approve(store, draft.grant_id, Identity(name="carol")).grant_id


@pytest.mark.req("L-04", "L-10")
def test_one_grant_permits_one_run_only(stage_url: str, clock: VirtualClock) -> None:
    with stage(stage_url, clock) as store:
        with pytest.raises(AuthorityError) as caught:
            run(store, fill, {}, root="r", **REAL)
        assert caught.value.code == "REJECT_AUTH_MISSING"
        grant = granted(store, "ann")
        interrupted(store, "inside S1_RESERVED", grant_id=grant)
        with store.reading() as reading:
            found = reading.grants.get(grant)
            assert found is not None
            assert (found.state, reading.runs.get("r"), reading.leases.all()) == ("active", None, {})

        interrupted(store, "after PUT_A", grant_id=grant)
        before = everything(store)
        # While the winner holds the lease, and after it was lost: the loser gets the code of the grant.
        for _ in range(2):
            with pytest.raises(AuthorityError) as caught:
                run(store, fill, {}, root="s", grant_id=grant, **REAL)
            assert caught.value.code == "REJECT_AUTH_ALREADY_CONSUMED"
            assert everything(store) == before
            assert undo(store, fill, root="r", **WHO).state == "stopped"
            before = everything(store)
        # It stays used after a failure; the run that used it goes on under it.
        assert resume(store, fill, root="r", grant_id=grant, **WHO).verdict == "DONE"
        with store.reading() as reading:
            assert [(found.grant_id, str(found.state)) for found in reading.grants.page()] == [(grant, "consumed")]


@pytest.mark.req("L-10", "L-12")
def test_a_grant_permits_only_its_executor(stage_url: str, clock: VirtualClock) -> None:
    with stage(stage_url, clock) as store:
        own = granted(store, "ann")
        interrupted(store, "after PUT_A", grant_id=own)
        clock.advance(3600)
        before = everything(store)
        for grant_id, code in ((None, "REJECT_AUTH_MISSING"), (own, "REJECT_AUTH_ALREADY_CONSUMED")):
            with pytest.raises(AuthorityError) as caught:
                resume(store, fill, root="r", grant_id=grant_id, **BOB)
            assert caught.value.code == code
            assert everything(store) == before
            looked = run(store, fill, {}, root="r", grant_id=grant_id, mode=Mode.VERIFY_ONLY, **BOB)
            assert looked.authority == code
        theirs = granted(store, "bob")
        assert resume(store, fill, root="r", grant_id=theirs, **BOB).verdict == "DONE"
        with store.reading() as reading:
            known = reading.runs.get("r")
            assert known is not None
            assert known.grant_id == theirs


@pytest.mark.req("L-10")
def test_a_stopped_run_continues_under_its_own_grant_or_a_new_one(stage_url: str, clock: VirtualClock) -> None:
    with stage(stage_url, clock) as store:
        own = granted(store, "ann")
        interrupted(store, "after PUT_A", grant_id=own)
        undo(store, fill, root="r", **WHO)
        fresh = granted(store, "ann")
        assert resume(store, fill, root="r", grant_id=fresh, **WHO).grant_id == fresh
        with store.reading() as reading:
            found = {grant.grant_id: str(grant.state) for grant in reading.grants.page()}
        assert found == {own: "consumed", fresh: "consumed"}


@pytest.mark.req("L-25")
def test_a_dry_run_reports_the_grant_and_does_not_consume_it(stage_url: str, clock: VirtualClock) -> None:
    with stage(stage_url, clock) as store:
        grant = granted(store, "ann")
        before = everything(store)
        assert run(store, fill, {}, root="r", **WHO).authority == "GO"
        assert run(store, fill, {}, root="r", grant_id=grant, **WHO).authority == "GO"
        assert run(store, fill, {"room": 5}, root="r", **WHO).authority == "REJECT_AUTH_WRONG_PLAN"
        assert run(store, fill, {}, root="r", **BOB).authority == "REJECT_AUTH_WRONG_EXECUTOR"
        assert run(store, fill, {}, root="r", grant_id=grant + 1, **WHO).authority == "REJECT_AUTH_NOT_FOUND"
        assert everything(store) == before


# ---------------------------------------------------------------------------------------------------------------------
# One root, and a database that goes away


def test_a_root_that_another_run_takes_at_the_last_moment_is_refused(store: Store[Any]) -> None:
    @procedure("each", checks=(LOOK,), target=lambda params: f"shelf:{params['shelf']}")
    def each() -> Iterator[Step]:
        yield put("A")

    def another() -> None:
        assert run(store, each, {"shelf": 2}, root="r", **REAL).verdict == "DONE"

    with pytest.raises(IdempotencyConflictError):
        run(store, each, {"shelf": 1}, root="r", world=hooked("before S1_RESERVED", another), **REAL)
    assert books(store) == ["A"]
    with store.reading() as reading:
        assert list(reading.leases.all()) == ["shelf:2"]


@pytest.mark.pg
@pytest.mark.req("L-08")
def test_of_two_runs_that_begin_under_one_root_at_once_one_is_refused(pg_url: str) -> None:
    """With two targets no lease keeps them apart: the second waits for the first to commit, and finds the root used."""

    @procedure("each", target=lambda params: f"shelf:{params['shelf']}")
    def each() -> Iterator[Step]:
        yield put("A")

    with make(pg_url) as store, open_store(pg_url) as other, ThreadPoolExecutor(1) as pool:
        second: list[Future[Any]] = []

        def begin_another() -> None:
            second.append(pool.submit(run, other, each, {"shelf": 2}, root="r", **REAL))
            with psycopg.connect(pg_url, autocommit=True) as watcher:
                waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                wait_until(lambda: watcher.execute(waiting).fetchone() == (1,), 30, "the second waits for the first")

        report = run(store, each, {"shelf": 1}, root="r", world=hooked("inside S1_RESERVED", begin_another), **REAL)
        assert report.verdict == "DONE"
        with pytest.raises(IdempotencyConflictError) as caught:
            second[0].result(30)
        assert caught.value.context["procedure"] == "each"
        assert books(store) == ["A"]
        with store.reading() as reading:
            assert list(reading.leases.all()) == ["shelf:1"]


@pytest.mark.req("L-08")
def test_if_the_database_is_lost_nothing_is_undone_and_the_run_continues_later(ledger_url: str) -> None:
    lost: list[str] = []

    def fails_once(at: StepContext) -> None:
        at.effect("INSERT INTO shelf (book) VALUES ('B')", rows=1)
        if not lost:
            lost.append("once")
            _lose(at)

    what = Procedure(name="p", version="1", steps=(put("A"), Step("B", fails_once, stop="COMP_B"), put("C")))
    with make(ledger_url) as store, pytest.raises(StoreUnavailableError):
        run(store, what, {}, root="r", **REAL)
    with open_store(ledger_url) as store:
        assert books(store) == ["A"]
        with store.reading() as reading:
            known = reading.runs.get("r")
            assert known is not None
            assert (known.state, known.stop_state, known.failure) == ("running", None, None)
        report = resume(store, what, root="r", **WHO)
        assert (report.verdict, report.counts) == ("DONE", {"skipped": 2, "performed": 2})
        assert books(store) == ["A", "B", "C"]


def _lose(at: StepContext) -> None:
    """Lose the database for real: the server ends the session, or the file may not grow."""
    store = at.transaction.store
    if store.dialect == "postgres":
        [found] = at.query("SELECT pg_backend_pid() AS pid")
        with psycopg.connect(store.url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (found["pid"],))
        at.query("SELECT 1")
    else:
        [[pages]] = at.transaction.execute("PRAGMA page_count")
        at.transaction.execute(f"PRAGMA max_page_count = {pages}")
        at.effect("INSERT INTO shelf (book) VALUES (:book)", {"book": "x" * 10_000_000})


@pytest.mark.pg
def test_a_deadlock_or_lock_timeout_is_no_failure_of_the_step(pg_url: str) -> None:
    """An effect that waits too long for another session's lock: the run stays where it is."""
    blocking: list[psycopg.Connection[Any]] = []

    def waits(at: StepContext) -> None:
        if not blocking:
            other = psycopg.connect(pg_url)
            other.execute("LOCK TABLE shelf IN ACCESS EXCLUSIVE MODE")
            blocking.append(other)
        at.transaction.execute("SET LOCAL lock_timeout TO '20ms'")
        at.effect("INSERT INTO shelf (book) VALUES ('B')", rows=1)

    first = Step("FIRST", lambda _: None, stop="COMP_FIRST")
    what = Procedure(name="p", version="1", steps=(first, Step("B", waits, stop="COMP_B")))
    with make(pg_url) as store:
        with pytest.raises(StoreBusyError):
            run(store, what, {}, root="r", **REAL)
        blocking[0].close()
        assert resume(store, what, root="r", **WHO).counts == {"skipped": 2, "performed": 1}
        assert books(store) == ["B"]


@pytest.mark.pg
def test_a_lease_whose_holder_is_in_the_middle_of_a_step_is_held(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(pg_url) as store, store.transaction() as transaction:
        assert transaction.leases.acquire("procedure:fill", "ann/r", 300) == 1
        monkeypatch.setattr("holdfast.store.postgres.store.LOCK_S", 0.05)
        with (
            open_store(pg_url) as other,
            pytest.raises(RuntimeLeaseError) as caught,
        ):
            run(other, fill, {}, root="s", **REAL)
        assert (caught.value.context["lease"], caught.value.context["expired"]) == ("procedure:fill", False)
