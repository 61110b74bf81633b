"""Releases: one-off, under a grant that is used up with them; many together; races and crashes consume no grant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Execution, Ledger
from holdfast.audit.check.runner import check
from holdfast.core.authority import Act
from holdfast.core.errors import (
    AuthorityError,
    GovernanceError,
    InputError,
    InvalidStateTransitionError,
    JobNotFoundError,
    PlanStaleError,
)
from holdfast.core.machines import JOB, JobState
from holdfast.core.selection import candidates_hash
from holdfast.engine.events import Transition
from holdfast.engine.worker.retry import RetryPolicy, Strategy
from holdfast.governance import releases
from holdfast.governance.quarantine import QuarantineFilters, add, history, purge
from holdfast.governance.reasons import Reason
from holdfast.governance.releases import plan_release, release, release_many
from holdfast.store import Store, create_store, open_store
from holdfast.testing import VirtualClock, drain, virtual_world
from tests.enforcement.raw import LATER, Client
from tests.governance.quarantining import (
    ANN,
    failed_once,
    grant_states,
    granted,
    grants,
    job_of,
    quarantined,
    states,
    submitted,
)
from tests.support.forkserver import ForkServer, shared_server

ROLES = "tests.governance.quarantining"


@pytest.fixture
def store(ledger_url: str) -> Iterator[Store[Any]]:
    with create_store(ledger_url, VirtualClock()) as store:
        yield store


@pytest.fixture
def stage(stage_url: str) -> Iterator[Store[Any]]:
    """A store of stage, where no requester approves."""
    with open_store(stage_url) as store:
        yield store


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with shared_server(ROLES) as server:
        yield server


def at_once(max_attempts: int) -> RetryPolicy:
    return RetryPolicy(strategy=Strategy.IMMEDIATE, jitter=0, max_attempts=max_attempts)


def refused(error: pytest.ExceptionInfo[GovernanceError]) -> str:
    return str(error.value.code)


# ---------------------------------------------------------------------------------------------------------------------
# One


@pytest.mark.req("K-17", "X-01", "G-28")
def test_a_release_names_its_operator_its_reason_and_its_grant(store: Store[Any]) -> None:
    [job_id] = quarantined(store, "poison", message="bad")
    run_at = store.now() + timedelta(hours=2)
    released = release(store, job_id, run_at=run_at, **ANN)
    job = job_of(store, job_id)
    assert (released.changed, released.job, released.grant_id) == (True, job, 1)
    assert (job.state, job.version, job.run_at) == (JobState.PENDING, 3, run_at)
    # What went wrong before stays on record until something else does.
    assert (job.quarantine_code, job.last_error_code, job.last_error_message) == (None, "poison", "bad")
    with store.reading() as reading:
        row = reading.journal.of(job_id)[-1]
        [consumed] = [row for row in reading.journal.of(1, "GRANT") if row.event == "consume"]
    assert (row.source, row.target, row.event) == ("quarantined", "pending", "release")
    assert (row.actor, row.reason, row.grant_id) == ("ann", "the reader was mended", 1)
    assert (consumed.move_id, consumed.actor, consumed.at) == (row.move_id, "ann", row.at)
    assert grant_states(store) == [("job.release", f"job:{job_id}", "consumed")]

    again = release(store, job_id, **ANN)  # it waits already: nothing to do, and nothing is used up
    assert (again.changed, again.grant_id, again.job.version) == (False, None, 3)
    assert len(grants(store)) == 1
    assert check(store).ok


@pytest.mark.req("K-17", "G-28")
def test_a_release_consumes_its_grant(stage: Store[Any]) -> None:
    [job_id] = quarantined(stage, max_attempts=1, replay_attempts=0)
    first = granted(stage, Act.RELEASE, f"job:{job_id}")
    assert release(stage, job_id, grant_id=first, **ANN).changed
    failed_once(stage)
    assert job_of(stage, job_id).state is JobState.QUARANTINED  # back again, after one attempt

    with pytest.raises(AuthorityError) as error:
        release(stage, job_id, grant_id=first, **ANN)
    assert refused(error) == "REJECT_AUTH_ALREADY_CONSUMED"
    with pytest.raises(AuthorityError) as error:
        release(stage, job_id, **ANN)
    assert refused(error) == "REJECT_AUTH_MISSING"
    assert job_of(stage, job_id).state is JobState.QUARANTINED
    second = granted(stage, Act.RELEASE, f"job:{job_id}")
    assert release(stage, job_id, **ANN).grant_id == second  # the one that fits is found
    with stage.reading() as reading:
        assert [past.grant_id for past in history(reading, job_id=job_id)] == [second, first]


@pytest.mark.req("K-17", "X-01")
def test_a_grant_for_something_else_releases_nothing(stage: Store[Any]) -> None:
    job_id, other = quarantined(stage, n=2)
    for act, target, operator, code in (
        (Act.RELEASE, f"job:{other}", "ann", "REJECT_AUTH_WRONG_CARRIER"),
        (Act.REPLAY, f"job:{job_id}", "ann", "REJECT_AUTH_WRONG_CARRIER"),
        (Act.RELEASE, f"job:{job_id}", "eve", "REJECT_AUTH_WRONG_EXECUTOR"),
    ):
        number = granted(stage, act, target, operator)
        with pytest.raises(AuthorityError) as error:
            release(stage, job_id, grant_id=number, **ANN)
        assert refused(error) == code
    with pytest.raises(AuthorityError) as error:
        release(stage, job_id, grant_id=99, **ANN)
    assert refused(error) == "REJECT_AUTH_NOT_FOUND"
    assert {grant.state for grant in grants(stage)} == {"active"}
    assert states(stage, [job_id, other]) == ["quarantined", "quarantined"]


@pytest.mark.req("K-16")
def test_only_a_quarantined_job_can_be_released(store: Store[Any]) -> None:
    [job_id] = submitted(store)
    failed_once(store)
    with pytest.raises(InvalidStateTransitionError) as error:
        release(store, job_id, **ANN)
    assert (error.value.context["job_id"], error.value.context["state"]) == (job_id, "failed")
    with pytest.raises(JobNotFoundError):
        release(store, 10_000, **ANN)
    for bad in ({"operator": " "}, {"reason": ""}, {"run_at": store.now().replace(tzinfo=None)}):
        with pytest.raises(InputError):
            release(store, job_id, **{**ANN, **bad})
    assert grants(store) == []


@pytest.mark.req("G-21")
def test_a_job_without_its_payload_is_never_released(stage: Store[Any]) -> None:
    [lost] = quarantined(stage)
    number = granted(stage, Act.RELEASE, f"job:{lost}")
    purge(stage, timedelta(0), operator="ann", reason="old", apply=True)
    [kept] = quarantined(stage)
    with pytest.raises(GovernanceError) as error:
        release(stage, lost, grant_id=number, **ANN)
    assert refused(error) == "slimmed"
    assert (error.value.exit_code, error.value.context["job_id"]) == (3, lost)
    with pytest.raises(GovernanceError) as error:
        release_many(stage, [kept, lost], **ANN)
    assert refused(error) == "slimmed"
    assert plan_release(stage, QuarantineFilters(), operator="ann").job_ids == (
        kept,
    )  # what matches is what can be released
    assert grant_states(stage) == [("job.release", f"job:{lost}", "active")]


@pytest.mark.req("K-17", "X-01")
def test_the_database_refuses_a_release_by_hand(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        released, job_id = quarantined(store, n=2)
        grant_id = release(store, released, **ANN).grant_id
        with store.reading() as reading:
            used = reading.journal.of(released)[-1].move_id
    client = Client(ledger_url)
    update = (
        "UPDATE holdfast_jobs SET state = 'pending', version = version + 1, event = 'release', move_id = ?,"
        f" grant_id = ?, quarantine_code = NULL, due_at = run_at, resting = NULL, updated_at = '{LATER}'"
        " WHERE job_id = ?"
    )
    assert client.refusal(update, "by-hand", None, job_id) == "HF009"
    assert client.refusal(update, "by-hand", grant_id, job_id) == "HF009"  # it was consumed by another move
    assert client.refusal(update, used, grant_id, job_id) is not None  # it has moved a job already
    client.rollback()
    client.close()


# ---------------------------------------------------------------------------------------------------------------------
# What a job may do after its release


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger(ledger_url, world=virtual_world()) as ledger:
        yield ledger


@pytest.mark.req("K-17", "X-06")
def test_a_released_job_without_attempts_left_runs_once_and_is_quarantined_again(ledger: Ledger) -> None:
    mended = False

    @ledger.operation("flaky", retry=at_once(2), replay_attempts=1)
    def flaky(run: Execution) -> str:
        if not mended:
            raise OSError("the disk said no")
        return "done"

    job_id = ledger.submit(flaky.call()).job_id
    drain(ledger)
    ledger.retry(job_id)
    drain(ledger)
    assert _stands(ledger, job_id) == ("quarantined", 3)  # two by itself, one by hand: that was its whole budget

    assert release(ledger, job_id, operator="ann", reason="try again").job.state is JobState.PENDING
    drain(ledger)
    assert _stands(ledger, job_id) == ("quarantined", 4)  # it ran once, and came back: no retry
    mended = True
    heard: list[Transition] = []
    subscription = ledger.subscribe(heard.append)
    release(ledger, job_id, operator="ann", reason="mended")
    assert subscription.flush()
    assert [(event.machine, event.event, event.target, event.actor) for event in heard] == [
        (JOB.name, "release", "pending", "ann")
    ]
    subscription.close()
    drain(ledger)
    assert _stands(ledger, job_id) == ("succeeded", 5)
    assert ledger.receipt(job_id).result == "done"
    assert len(grants(ledger.store)) == 2


@pytest.mark.req("K-17", "X-06")
def test_a_job_quarantined_early_has_its_retries_after_a_release(ledger: Ledger) -> None:
    @ledger.operation("flaky", retry=at_once(3), replay_attempts=1)
    def flaky(run: Execution) -> None:
        raise OSError("the disk said no")

    job_id = ledger.submit(flaky.call()).job_id
    add(ledger.store, job_id, "connector_error", **ANN)
    release(ledger, job_id, operator="ann", reason="mended")
    drain(ledger)
    assert _stands(ledger, job_id) == ("failed", 3)


def _stands(ledger: Ledger, job_id: int) -> tuple[str, int]:
    job = ledger.job(job_id)
    return job.state.value, job.spent


# ---------------------------------------------------------------------------------------------------------------------
# Many


@pytest.mark.req("K-17", "G-21")
def test_many_jobs_are_released_under_one_grant_each_by_its_own(stage: Store[Any]) -> None:
    ids = quarantined(stage, "timed_out", n=3)
    [other] = quarantined(stage, "parse_error")
    meant = QuarantineFilters(reason=Reason.TIMEOUT)
    plan = plan_release(stage, meant, operator="ann")
    target = f"quarantine:{candidates_hash(ids)}"
    assert (plan.job_ids, plan.target, plan.authority, plan.grant_id) == (
        tuple(ids), target, "REJECT_AUTH_MISSING", None,
    )  # fmt: skip
    with pytest.raises(AuthorityError) as error:
        release_many(stage, meant, expected=3, **ANN)
    assert refused(error) == "REJECT_AUTH_MISSING"
    assert grant_states(stage) == []

    parent = granted(stage, Act.RELEASE_MANY, target)
    assert plan_release(stage, meant, operator="ann").authority == "GO"
    done = release_many(stage, meant, expected=3, grant_id=parent, **ANN)
    assert (done.job_ids, done.target, done.grant_id) == (tuple(ids), target, parent)
    assert states(stage, [*ids, other]) == ["pending", "pending", "pending", "quarantined"]
    assert grant_states(stage) == [
        ("quarantine.release", target, "consumed"),
        *(("job.release", f"job:{job_id}", "consumed") for job_id in ids),
    ]
    with stage.reading() as reading:
        past_releases = history(reading)
        own = [reading.journal.of(job_id)[-1].grant_id for job_id in ids]
    assert [(past.job_id, past.under, past.approved_how) for past in past_releases] == [
        (job_id, parent, "grant") for job_id in reversed(ids)
    ]
    assert own == [past.grant_id for past in reversed(past_releases)]
    assert check(stage).ok
    # Once: the same jobs, back in quarantine, are another release.
    for job_id in ids:
        add(stage, job_id, "timed_out", **ANN)
    with pytest.raises(AuthorityError) as error:
        release_many(stage, ids, grant_id=parent, **ANN)
    assert refused(error) == "REJECT_AUTH_ALREADY_CONSUMED"


@pytest.mark.req("K-17")
def test_many_jobs_are_released_all_or_none(stage: Store[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ids = quarantined(stage, n=3)
    [waiting] = submitted(stage)
    parent = granted(stage, Act.RELEASE_MANY, f"quarantine:{candidates_hash(ids)}")
    with pytest.raises(PlanStaleError) as stale:
        release_many(stage, QuarantineFilters(), expected=2, grant_id=parent, **ANN)
    assert stale.value.context == {"found": 3, "expected": 2}
    with pytest.raises(InvalidStateTransitionError):
        release_many(stage, [*ids, waiting], grant_id=parent, **ANN)
    with pytest.raises(JobNotFoundError):
        release_many(stage, [*ids, 10_000], grant_id=parent, **ANN)
    with pytest.raises(AuthorityError) as error:  # a part of the set is another set
        release_many(stage, ids[:2], grant_id=parent, **ANN)
    assert refused(error) == "REJECT_AUTH_WRONG_CARRIER"
    with pytest.raises(InputError):
        release_many(stage, QuarantineFilters(code="nobody_has_this"), grant_id=parent, **ANN)
    monkeypatch.setattr(releases, "MANY_MAX", 2)
    for which in (QuarantineFilters(), ids):
        with pytest.raises(InputError) as many:
            release_many(stage, which, grant_id=parent, **ANN)
        assert many.value.context == {"limit": 2}
    assert states(stage, ids) == ["quarantined"] * 3
    assert [grant.state for grant in grants(stage)] == ["active"]


@pytest.mark.req("K-17")
@pytest.mark.parametrize("n", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_one_grant_releases_up_to_the_limit(store: Store[Any], n: int) -> None:
    ids = quarantined(store, n=n)
    assert release_many(store, QuarantineFilters(), expected=n, **ANN).job_ids == tuple(ids)
    assert set(states(store, ids)) == {JobState.PENDING}
    assert len({grant.grant_id for grant in grants(store)}) == n + 1


# ---------------------------------------------------------------------------------------------------------------------
# Races and deaths


@pytest.mark.req("K-17")
def test_of_two_concurrent_releases_one_wins_and_the_other_consumes_no_grant(
    stage_url: str, server: ForkServer, tmp_path: Path
) -> None:
    with open_store(stage_url) as store:
        ids = quarantined(store, n=8)
        work = {
            who: [(job_id, granted(store, Act.RELEASE, f"job:{job_id}", who)) for job_id in ids]
            for who in ("ann", "eve")
        }
        changed = _raced(server, "release_each", stage_url, tmp_path, work)
        assert [ann + eve for ann, eve in zip(changed["ann"], changed["eve"], strict=True)] == [1] * len(ids)
        assert set(states(store, ids)) == {JobState.PENDING}
        winners = {
            number for who, each in work.items() for (_, number), won in zip(each, changed[who], strict=True) if won
        }
        assert {grant.grant_id for grant in grants(store) if grant.state == "consumed"} == winners
        assert sum(grant.state == "active" for grant in grants(store)) == len(ids)
        with store.reading() as reading:
            events = [[row.event for row in reading.journal.of(job_id)] for job_id in ids]
        assert events == [["submit", "quarantine", "release"]] * len(ids)


def _raced(server: ForkServer, role: str, url: str, directory: Path, work: dict[str, Any]) -> dict[str, list[bool]]:
    gate = directory / "gate"
    children = {
        who: server.spawn(
            f"{ROLES}:{role}", url=url, gate=str(gate), answer_file=str(directory / who), operator=who, work=each
        )
        for who, each in work.items()
    }
    gate.touch()
    assert {who: child.wait(60) for who, child in children.items()} == dict.fromkeys(work, 0), server.log
    return {who: json.loads((directory / who).read_text(encoding="utf-8")) for who in work}


@pytest.mark.req("G-21")
def test_a_job_that_is_purged_meanwhile_is_not_released(stage: Store[Any]) -> None:
    [job_id] = quarantined(stage)
    number = granted(stage, Act.RELEASE, f"job:{job_id}")
    with ThreadPoolExecutor(1) as pool:
        with stage.transaction() as transaction:
            with transaction.maintenance.open(who="eve", why="old"):
                assert transaction.retention.slim([job_id], before=stage.now() + timedelta(seconds=1)) == [job_id]
            releasing = pool.submit(release, stage, job_id, grant_id=number, **ANN)
            wait([releasing], timeout=0.5)  # it has looked at the job, or waits for its turn to do so
            assert not releasing.done()
        with pytest.raises(GovernanceError) as error:
            releasing.result(30)
    assert refused(error) == "slimmed"
    assert (job_of(stage, job_id).state, grants(stage)[0].state) == ("quarantined", "active")


@pytest.mark.req("K-17")
def test_of_two_runners_on_one_grant_one_wins_and_the_other_has_written_nothing(
    stage_url: str, server: ForkServer, tmp_path: Path
) -> None:
    with open_store(stage_url) as store:
        ids = quarantined(store, n=5)
        parent = granted(store, Act.RELEASE_MANY, f"quarantine:{candidates_hash(ids)}")
        gate = tmp_path / "gate"
        children = [
            server.spawn(
                f"{ROLES}:release_the_same", url=stage_url, gate=str(gate), answer_file=str(tmp_path / who), ids=ids,
                grant_id=parent,
            )
            for who in ("a", "b")
        ]  # fmt: skip
        gate.touch()
        assert [child.wait(60) for child in children] == [0, 0], server.log
        said = sorted(json.loads((tmp_path / who).read_text(encoding="utf-8")) for who in ("a", "b"))
        # The second finds the grant consumed, or the jobs released before it needs one.
        assert said in (["REJECT_AUTH_ALREADY_CONSUMED", "released"], ["invalid_state_transition", "released"])
        assert len(grants(store)) == 1 + len(ids)
        assert check(store).ok


@pytest.mark.req("K-17")
def test_a_death_at_any_statement_of_a_release_leaves_all_or_nothing(stage_url: str, server: ForkServer) -> None:
    with open_store(stage_url) as store:
        ids = quarantined(store, n=2)
        parent = granted(store, Act.RELEASE_MANY, f"quarantine:{candidates_hash(ids)}")
        stride = 2 if store.dialect == "sqlite" else 8
        points = 0
        while True:
            child = server.spawn(
                f"{ROLES}:release_all", url=stage_url, ids=ids, grant_id=parent, kill_at=points * stride
            )
            status = child.wait(60)
            if status == 0:
                break
            assert status == -9, server.log
            assert states(store, ids) == ["quarantined", "quarantined"]
            assert [grant.state for grant in grants(store)] == ["active"]
            points += 1
        assert points * stride >= 20
        assert states(store, ids) == ["pending", "pending"]
        assert [grant.state for grant in grants(store)] == ["consumed"] * 3
    with open_store(stage_url) as store:
        assert check(store).ok
