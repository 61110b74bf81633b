"""Kill switches: thrown without a grant, lifted by a grant; no worker starts an operation that is switched off."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Execution, Ledger
from holdfast.audit.check.runner import check
from holdfast.core.authority import Act
from holdfast.core.errors import AuthorityError, InputError, RecordNotFoundError
from holdfast.core.machines import SWITCH, JobState
from holdfast.engine.tasks import ClaimTask
from holdfast.governance.switches import NAME_BYTES_MAX, OPERATION, lift, on, stopping, throw
from holdfast.store import Declared, Lease, Store, Submission, create_store, open_store
from holdfast.testing import drain, virtual_world
from tests.enforcement.raw import LATER, Client
from tests.engine.working import eventually, working
from tests.governance.quarantining import THROWER, grant_states, granted, grants, job_of
from tests.support.forkserver import shared_server
from tests.support.ledgers import new_store

ROLES = "tests.governance.quarantining"
UNIQUE_VIOLATION = "23505"
EVE: Any = {"actor": "eve", "reason": "I see it too"}


@pytest.fixture
def store(ledger_url: str) -> Iterator[Store[Any]]:
    with create_store(ledger_url) as store:
        yield store


@pytest.fixture
def stage(stage_url: str) -> Iterator[Store[Any]]:
    """A store of stage, where no requester approves."""
    with open_store(stage_url) as store:
        yield store


def on_now(store: Store[Any]) -> list[str]:
    with store.reading() as reading:
        return list(reading.switches.on())


# ---------------------------------------------------------------------------------------------------------------------
# Turning


@pytest.mark.req("K-55")
def test_a_switch_is_thrown_at_once_and_lifted_by_a_grant(stage: Store[Any]) -> None:
    thrown = throw(stage, "replay:goes-abi", **THROWER)
    assert (thrown.changed, thrown.switch.state, thrown.switch.thrown_by) == (True, "on", "ann")
    again = throw(stage, "replay:goes-abi", **EVE)  # it is on: the name and the reason of the first stay
    assert (again.changed, again.switch) == (False, thrown.switch)
    throw(stage, "replay", **EVE)
    with stage.reading() as reading:
        found = on(reading, ["operation:x", "replay:goes-abi", "replay", "replay"])
        assert [(switch.name, switch.thrown_by, switch.reason) for switch in found] == [
            ("replay:goes-abi", "ann", "it eats disks"),
            ("replay", "eve", "I see it too"),
        ]
        assert stopping(reading, "x") is None

    with pytest.raises(AuthorityError) as error:
        lift(stage, "replay", **EVE)
    assert error.value.code == "REJECT_AUTH_MISSING"
    number = granted(stage, Act.LIFT, "switch:replay", "eve")
    with pytest.raises(AuthorityError) as error:
        lift(stage, "replay:goes-abi", grant_id=number, **EVE)
    assert error.value.code == "REJECT_AUTH_WRONG_CARRIER"
    assert (on_now(stage), grants(stage)[0].state) == (["replay", "replay:goes-abi"], "active")

    lifted = lift(stage, "replay", grant_id=number, **EVE)
    assert (lifted.changed, lifted.switch.state, lifted.switch.grant_id) == (True, "off", number)
    with stage.reading() as reading:
        rows = reading.journal.of(lifted.switch.switch_id, SWITCH.name)
        [consumed] = [row for row in reading.journal.of(number, "GRANT") if row.event == "consume"]
    assert [(row.event, row.actor, row.reason, row.grant_id) for row in rows] == [
        ("throw", "eve", "I see it too", None),
        ("lift", "eve", "I see it too", number),
    ]
    assert consumed.move_id == rows[1].move_id
    assert (on_now(stage), grant_states(stage)) == (["replay:goes-abi"], [("switch.lift", "switch:replay", "consumed")])

    off = lift(stage, "replay", **EVE)  # it is off: nothing to do, and no grant is needed
    assert (off.changed, off.switch) == (False, lifted.switch)
    assert throw(stage, "replay", **THROWER).switch.switch_id > lifted.switch.switch_id  # another throwing
    with pytest.raises(AuthorityError) as error:
        lift(stage, "replay", grant_id=number, **EVE)
    assert error.value.code == "REJECT_AUTH_ALREADY_CONSUMED"
    assert check(stage).ok


@pytest.mark.parametrize(
    "name, changed",
    [("a*", {}), ("", {}), (" a", {}), ("a\nb", {}), ("a\0", {}), ("\ud800", {}), ("x" * (NAME_BYTES_MAX + 1), {}),
     (OPERATION, {}), ("replay:", {}), ("replay", {"actor": ""}), ("replay", {"reason": " "})],
)  # fmt: skip
def test_an_invalid_switch_name_is_refused(sqlite_url: str, name: str, changed: dict[str, str]) -> None:
    with new_store(sqlite_url) as store:
        for turn in (throw, lift):
            with pytest.raises(InputError):
                turn(store, name, **{**THROWER, **changed})
        with store.reading() as reading:
            assert reading.switches.page() == []


def test_lifting_a_switch_that_was_never_thrown_is_an_error(store: Store[Any]) -> None:
    throw(store, "operation:echo", **THROWER)
    with pytest.raises(RecordNotFoundError) as error:
        lift(store, "operation:ehco", **THROWER)
    assert error.value.context == {"switch": "operation:ehco"}
    assert (on_now(store), grants(store)) == (["operation:echo"], [])


@pytest.mark.req("K-55")
def test_the_database_refuses_a_lift_by_hand(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        throw(store, "replay", **THROWER)
        grant_id = lift(store, "replay", **THROWER).switch.grant_id
        switch_id = throw(store, "replay", **THROWER).switch.switch_id
    client = Client(ledger_url)
    update = (
        "UPDATE holdfast_switches SET state = 'off', version = version + 1, event = 'lift', move_id = ?, grant_id = ?,"
        f" updated_at = '{LATER}' WHERE switch_id = ?"
    )
    assert client.refusal(update, "by-hand", None, switch_id) == "HF009"
    assert client.refusal(update, "by-hand", 10_000, switch_id) == "HF009"
    # It was consumed by another move, as the journal shows: the code depends on which check the database runs first.
    assert client.refusal(update, "by-hand", grant_id, switch_id) in ("HF009", UNIQUE_VIOLATION)
    assert client.refusal("DELETE FROM holdfast_switches WHERE switch_id = ?", switch_id) == "HF003"
    renamed = "UPDATE holdfast_switches SET name = 'other' WHERE switch_id = ?"
    assert client.refusal(renamed, switch_id) == "HF006"
    client.rollback()
    client.close()


@pytest.mark.req("K-55")
def test_of_two_concurrent_lifts_one_wins_and_the_other_consumes_no_grant(stage_url: str, tmp_path: Path) -> None:
    with open_store(stage_url) as store, shared_server(ROLES) as server:
        names = [f"incident-{n}" for n in range(6)]
        for name in names:
            throw(store, name, **THROWER)
        work = {
            who: [(name, granted(store, Act.LIFT, f"switch:{name}", who)) for name in names] for who in ("ann", "eve")
        }
        gate = tmp_path / "gate"
        children = [
            server.spawn(
                f"{ROLES}:lift_each",
                url=stage_url,
                gate=str(gate),
                answer_file=str(tmp_path / who),
                operator=who,
                work=each,
            )
            for who, each in work.items()
        ]
        gate.touch()
        assert [child.wait(60) for child in children] == [0, 0], server.log
        ann, eve = (json.loads((tmp_path / who).read_text(encoding="utf-8")) for who in ("ann", "eve"))
        assert [a + e for a, e in zip(ann, eve, strict=True)] == [1] * len(names)
        assert on_now(store) == []
        winners = {
            number
            for who, won in (("ann", ann), ("eve", eve))
            for (_, number), w in zip(work[who], won, strict=True)
            if w
        }
        assert {grant.grant_id for grant in grants(store) if grant.state == "consumed"} == winners
        assert sum(grant.state == "active" for grant in grants(store)) == len(names)


# ---------------------------------------------------------------------------------------------------------------------
# What a switch stops


@pytest.mark.req("K-55")
def test_jobs_of_an_operation_that_is_switched_off_are_not_claimed_and_stay_unchanged(store: Store[Any]) -> None:
    names = ["a", "ab", "a:b", "operation:a", "a;", "ä'\"%_\\ b"]
    with store.transaction() as transaction:
        transaction.operations.declare({name: Declared() for name in names})
        first = [
            transaction.jobs.submit([Submission(operation=name, payload="{}", priority=n % 2)], actor="t")[0].job_id
            for n, name in enumerate(names)
        ]
    stopped = {"a", "a;", "ä'\"%_\\ b"}
    before = [job_of(store, job_id) for job_id in first]
    for name in sorted(stopped):
        throw(store, OPERATION + name, **THROWER)
    with store.transaction() as transaction:
        assert transaction.jobs.outlook(["default"])[0] is not None
        taken = {attempt.job.operation for attempt in transaction.executions.claim(Lease(owner="w", seconds=30, n=10))}
        assert transaction.jobs.outlook(["default"])[0] is None
        assert transaction.executions.claim(Lease(owner="w", seconds=30, n=10)) == []
    assert taken == set(names) - stopped
    for job in before:
        if job.operation in stopped:
            assert job_of(store, job.job_id) == job  # not claimed, not given back, no attempt, no version
    lift(store, "operation:a", **THROWER)
    with store.transaction() as transaction:
        assert [a.job.operation for a in transaction.executions.claim(Lease(owner="w", seconds=30, n=10))] == ["a"]


@pytest.mark.req("K-55")
def test_a_running_job_continues_and_its_retry_waits_for_the_switch(ledger_url: str) -> None:
    with Ledger(ledger_url, world=virtual_world()) as ledger:

        @ledger.operation("harmful")
        def harmful(run: Execution) -> str:
            if run.attempt == 1:
                throw(ledger.store, "operation:harmful", **THROWER)
                raise TimeoutError("not now")
            return "done"

        @ledger.operation("harmless")
        def harmless(run: Execution) -> str:
            return "done"

        bad, good = (ledger.submit(operation.call()).job_id for operation in (harmful, harmless))
        clock = ledger.world.clock
        assert clock is not None
        drain(ledger)
        drain(ledger, until=clock().replace(year=clock().year + 1))
        assert (ledger.job(bad).state, ledger.job(bad).attempts) == (JobState.PENDING, 1)
        assert ledger.job(good).state is JobState.SUCCEEDED
        lift(ledger.store, "operation:harmful", **THROWER)
        drain(ledger)
        assert (ledger.job(bad).state, ledger.job(bad).attempts) == (JobState.SUCCEEDED, 2)


@pytest.mark.req("K-55")
def test_a_working_worker_obeys_from_the_next_claim_on_and_does_not_spin(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = 0
    performed = Ledger.perform_tasks

    def counted(self: Ledger, tasks: Any) -> None:
        nonlocal claims
        claims += sum(isinstance(task, ClaimTask) for task in tasks)
        performed(self, tasks)

    with Ledger(ledger_url) as ledger:

        @ledger.operation("quick")
        def quick(run: Execution) -> str:
            return "done"

        with working(ledger, poll_s=1.0):
            ledger.submit(quick.call()).wait(timeout=30)
            throw(ledger.store, "operation:quick", **THROWER)
            receipts = [ledger.submit(quick.call()) for _ in range(3)]
            monkeypatch.setattr(Ledger, "perform_tasks", counted)
            threading.Event().wait(1.5)
            assert claims < 50  # it sleeps, though jobs of its queue are due: one that spins makes hundreds
            assert {ledger.job(receipt.job_id).attempts for receipt in receipts} == {0}
            lift(ledger.store, "operation:quick", **THROWER)
            eventually(lambda: {ledger.job(r.job_id).state for r in receipts} == {JobState.SUCCEEDED})
