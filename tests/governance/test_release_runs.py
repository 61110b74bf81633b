"""Releases in bulk: a selection is requested, approved and released under one grant, at a rate, exactly once each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.audit.check.runner import check
from holdfast.core.authority import Act, Reject
from holdfast.core.errors import (
    AuthorityError,
    InputError,
    JobNotFoundError,
    PlanStaleError,
    RecordNotFoundError,
    ReplayGuardError,
)
from holdfast.core.selection import candidates_hash
from holdfast.engine.world import World
from holdfast.governance import releases, switches
from holdfast.governance.grants import request
from holdfast.governance.quarantine import QuarantineFilters
from holdfast.governance.release_runs import report_of, request_release, run_release
from holdfast.store import Store, open_store
from tests.governance.granting import approve_in_prod
from tests.governance.quarantining import grants, job_of, quarantined, states, wanted
from tests.support.forkserver import ForkServer, shared_server

ROLES = "tests.governance.quarantining"
ANN: Any = {"operator": "ann", "reason": "the key was renewed"}
REQUEST: Any = {
    "requester": "ann", "executor": "ann", "reason": "the key was renewed", "rollback_plan": "quarantine them",
}  # fmt: skip
EXPIRED = QuarantineFilters(code="http_401")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with shared_server(ROLES) as server:
        yield server


@pytest.fixture
def store(prod_url: str) -> Iterator[Store[Any]]:
    with open_store(prod_url) as store:
        yield store


def approved(store: Store[Any], which: Any = EXPIRED, **given: Any) -> int:
    """Request the release of a selection, have it approved with a key, and return the grant."""
    requested = request_release(store, which, **{**REQUEST, **given})
    approve_in_prod(store, requested.grant.grant_id)
    return requested.grant.grant_id


def releases_of(store: Store[Any], ids: list[int]) -> list[int]:
    """Return how often each job was released, by the journal."""
    with store.reading() as reading:
        return [sum(row.event == "release" for row in reading.journal.of(job_id)) for job_id in ids]


def test_a_selection_is_released_under_one_grant_at_a_rate(store: Store[Any]) -> None:
    ids, others = quarantined(store, "http_401", n=7), quarantined(store, "poison", n=2)
    requested = request_release(store, EXPIRED, expected=7, **REQUEST)
    assert (requested.total, requested.job_ids) == (7, tuple(ids))
    assert requested.grant.target == f"quarantine:{candidates_hash(ids)}"
    with pytest.raises(AuthorityError) as refused:
        run_release(store, requested.grant.grant_id, **ANN)
    assert refused.value.code == Reject.NOT_ACTIVE
    approve_in_prod(store, requested.grant.grant_id)
    start = datetime(2031, 1, 1, tzinfo=UTC)
    report = run_release(store, requested.grant.grant_id, rate=2.0, run_at=start, batch_size=3, **ANN)
    assert (report.done, report.released, report.skipped, report.batches) == (True, 7, {}, 3)
    assert (report.first_run_at, report.last_run_at) == (start, start + timedelta(seconds=3))
    assert [job_of(store, job_id).run_at for job_id in ids] == [start + timedelta(seconds=n / 2) for n in range(7)]
    assert (states(store, ids), states(store, others)) == (["pending"] * 7, ["quarantined"] * 2)
    assert releases_of(store, ids) == [1] * 7
    assert check(store).violations == ()


def test_the_run_of_a_grant_is_one_run(store: Store[Any]) -> None:
    ids = quarantined(store, "http_401", n=3)
    grant = approved(store)
    first = run_release(store, grant, **ANN)
    before = len(grants(store))
    assert run_release(store, grant, **ANN) == first
    assert (len(grants(store)), releases_of(store, ids)) == (before, [1, 1, 1])


def test_the_grant_is_for_its_executor_and_its_jobs(store: Store[Any]) -> None:
    quarantined(store, "http_401", n=2)
    grant = approved(store)
    late = quarantined(store, "http_401")
    with pytest.raises(AuthorityError) as refused:
        run_release(store, grant, operator="eve", reason="me too")
    assert refused.value.code == Reject.WRONG_EXECUTOR
    assert run_release(store, grant, **ANN).released == 2
    assert states(store, late) == ["quarantined"]  # it came after the request
    request_release(store, EXPIRED, **REQUEST)
    with pytest.raises(AuthorityError) as again:
        request_release(store, EXPIRED, **REQUEST)
    assert again.value.code == "grant_exists"


def test_jobs_changed_since_the_request_are_skipped(store: Store[Any]) -> None:
    ids = quarantined(store, "http_401", n=4)
    grant = approved(store)
    one = request_release(store, [ids[1]], **REQUEST)
    approve_in_prod(store, one.grant.grant_id)
    assert run_release(store, one.grant.grant_id, **ANN).released == 1
    report = run_release(store, grant, **ANN)
    assert (report.released, report.skipped) == (3, {"state_changed": 1})
    assert releases_of(store, ids) == [1] * 4
    assert check(store).violations == ()


def test_a_kill_switch_refuses_a_release_and_stops_a_run(store: Store[Any]) -> None:
    ids = quarantined(store, "http_401", n=6)
    grant = approved(store)
    stopped = run_release(store, grant, batch_size=2, stop_after=1, **ANN)
    assert (stopped.state, stopped.released, stopped.stop_reason) == ("stopped", 2, "STOPPED_BY_OPERATOR")
    switches.throw(store, "replay", actor="sec", reason="harm was seen")
    with pytest.raises(ReplayGuardError) as refused:
        run_release(store, grant, **ANN)
    assert refused.value.code == "kill_switch_active"
    with pytest.raises(ReplayGuardError):
        releases.release_many(store, ids[2:], **ANN)
    assert states(store, ids) == ["pending"] * 2 + ["quarantined"] * 4
    switches.lift(store, "replay", actor="ann", reason="it was mended", grant_id=grant_to_lift(store))
    assert run_release(store, grant, **ANN).released == 6
    assert releases_of(store, ids) == [1] * 6


def test_a_release_that_is_interrupted_can_be_continued_at_once(store: Store[Any]) -> None:
    ids = quarantined(store, "http_401", n=4)
    grant = approved(store)

    def press_ctrl_c(point: str) -> None:
        if point == "after batch 1":
            raise KeyboardInterrupt

    stopped = run_release(store, grant, batch_size=2, world=World(reach=press_ctrl_c), **ANN)
    assert (stopped.state, stopped.released, stopped.stop_reason) == ("stopped", 2, "STOPPED_BY_OPERATOR")
    assert run_release(store, grant, **ANN).released == 4
    assert releases_of(store, ids) == [1] * 4


def grant_to_lift(store: Store[Any]) -> int:
    what = wanted(store, Act.LIFT, "switch:replay")
    draft = request(store, what, requester="ann", rollback_plan="throw it", reason="mended")
    return approve_in_prod(store, draft.grant_id).grant_id


def test_bad_requests_write_nothing(store: Store[Any]) -> None:
    ids = quarantined(store, "http_401", n=2)
    attempts: list[tuple[Any, dict[str, Any], type[Exception]]] = [
        (QuarantineFilters(code="nothing"), {}, InputError),
        (EXPIRED, {"expected": 3}, PlanStaleError),
        ([*ids, 999], {}, JobNotFoundError),
    ]
    for which, given, error in attempts:
        with pytest.raises(error):
            request_release(store, which, **REQUEST, **given)
    assert grants(store) == []
    grant = approved(store)
    for rate in (0.0, -1.0, 1e9):
        with pytest.raises(InputError):
            run_release(store, grant, rate=rate, **ANN)
    run_release(store, grant, rate=5.0, **ANN)
    with pytest.raises(PlanStaleError):
        run_release(store, grant, rate=6.0, **ANN)
    with pytest.raises(RecordNotFoundError):
        run_release(store, 1 + max(one.grant_id for one in grants(store)), **ANN)
    with store.reading() as reading, pytest.raises(RecordNotFoundError):
        report_of(reading, 999)


def test_more_than_fit_into_one_transaction_are_a_run(store: Store[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "MANY_MAX", 20)
    ids = quarantined(store, "http_401", n=25)
    with pytest.raises(InputError) as refused:
        releases.release_many(store, EXPIRED, **ANN)
    assert refused.value.context["limit"] == 20
    report = run_release(store, approved(store), batch_size=10, **ANN)
    assert (report.released, report.batches) == (25, 3)
    assert set(states(store, ids)) == {"pending"}
    assert check(store, only=["grants_authentic"]).violations == ()


@pytest.mark.attack("faults")
def test_a_run_that_is_killed_is_continued_and_releases_each_job_once(
    store: Store[Any], prod_url: str, server: ForkServer
) -> None:
    """Kill -9 at a stride of statements: each time another process continues under the same grant."""
    ids = quarantined(store, "http_401", n=12)
    grant = approved(store)
    seen: list[int] = []
    for kill_at in (3, 40, 9, 75, 25):
        child = server.spawn(f"{ROLES}:release_run", url=prod_url, grant_id=grant, kill_at=kill_at)
        assert child.wait(60) == -9, server.log
        seen.append(sum(releases_of(store, ids)))
        with store.transaction() as transaction:  # the lease of a dead process ends by itself, after a minute
            transaction.execute(f"UPDATE holdfast_leases SET expires_at = acquired_at WHERE name = 'release:{grant}'")
    assert seen == sorted(seen)
    assert 0 < seen[-1] < 12  # some batches were made before the last kill, and some were not
    report = run_release(store, grant, **ANN)
    assert (report.done, report.released, report.skipped) == (True, 12, {})
    assert releases_of(store, ids) == [1] * 12
    due = [job_of(store, job_id).run_at for job_id in ids]
    assert [(at - due[0]).total_seconds() for at in due] == [n / 2 for n in range(12)]  # the rate of the first process
    assert check(store).violations == ()
