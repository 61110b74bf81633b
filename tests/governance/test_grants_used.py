"""What grants are used for below the commands: releasing from quarantine, repairing, and restoring a snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from holdfast.audit.check.runner import check
from holdfast.audit.files.restore import Restored, RestoreRequest, restore
from holdfast.audit.files.slips import read_slip, write_slip
from holdfast.audit.files.snapshot import create
from holdfast.audit.repair.repair import plan, repair
from holdfast.audit.seals.sealer import seal
from holdfast.audit.seals.verify import verify as sealed_history
from holdfast.core.authority import Act, Reject, Slip, Wanted
from holdfast.core.commands import Quarantine, Replay, Retry
from holdfast.core.decide import Move, Refused
from holdfast.core.digest import sha256
from holdfast.core.errors import (
    GovernanceError,
    InputError,
    PlanStaleError,
    RefusedByDatabaseError,
    SnapshotInvalidError,
    SpecInvalidError,
)
from holdfast.core.governed import Release
from holdfast.governance.approval import Identity, revoke_approver
from holdfast.governance.grants import approve, authorise, permission
from holdfast.store import Lease, Store, Submission, open_store
from holdfast.testing import VirtualClock
from tests.audit.snapshots import NewUrl, forge, work
from tests.governance.granting import People, journal_of, requested, wanted
from tests.support.ledgers import LedgerIn, new_store

pytest_plugins = ["tests.audit.places"]
EACH = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
GHOST = "INSERT INTO holdfast_counts (operation, queue, state, n) VALUES ('ghost', 'default', 'pending', 3)"
HOUR = timedelta(hours=1)


def refused(code: str, call: Callable[..., object], *args: Any, **given: Any) -> GovernanceError:
    with pytest.raises(GovernanceError) as caught:
        call(*args, **given)
    assert caught.value.code == code
    return caught.value


# ---------------------------------------------------------------------------------------------------------------------
# Release


@pytest.mark.req("K-16", "K-17", "X-01", "L-10")
def test_quarantine_is_left_once_by_a_named_operator_for_a_reason_under_a_grant(stage_url: str) -> None:
    with open_store(stage_url) as store:
        with store.transaction() as transaction:
            [one] = transaction.jobs.submit([Submission(operation="noop", payload="{}", key="poison")])
            transaction.rulings.rule(
                [(transaction.jobs.get(one.job_id), Quarantine("poison"))], actor="ann", reason="it hurts"
            )
        what = wanted(store, f"job:{one.job_id}")
        grant = requested(store, what)
        approve(store, grant.grant_id, Identity(name="bob"))

        def let_go(grant_id: int, move_id: str) -> Move | Refused:
            with store.transaction() as transaction:
                job = transaction.jobs.get(one.job_id)
                authorise(transaction, what, grant_id=grant_id, reason="mended", move_id=move_id)
                [answer] = transaction.rulings.rule(
                    [(job, Release("ann", "mended", grant_id))], actor="ann", reason="mended", move_id=move_id,
                    grant_id=grant_id,
                )  # fmt: skip
            return answer

        with store.transaction() as transaction:  # no routine flow leads out of it
            job = transaction.jobs.get(one.job_id)
            for command in (Retry(), Replay("incident")):
                assert isinstance(transaction.rulings.rule([(job, command)], actor="ann")[0], Refused)
        assert isinstance(let_go(grant.grant_id, uuid4().hex), Move)
        with store.reading() as reading:
            row = reading.journal.of(one.job_id)[-1]
            [used] = [row for row in reading.journal.of(grant.grant_id, "GRANT") if row.event == "consume"]
        assert (row.source, row.target, row.event, row.actor, row.reason) == (
            "quarantined", "pending", "release", "ann", "mended",
        )  # fmt: skip
        assert (row.grant_id, row.move_id) == (grant.grant_id, used.move_id)
        with store.transaction() as transaction:
            transaction.rulings.rule(
                [(transaction.jobs.get(one.job_id), Quarantine("poison"))], actor="ann", reason="again"
            )
        refused(Reject.ALREADY_CONSUMED, let_go, grant.grant_id, uuid4().hex)
        with pytest.raises(RefusedByDatabaseError), store.transaction() as transaction:  # and not past the gateway
            transaction.query(
                "UPDATE holdfast_jobs SET state = 'pending', version = version + 1, event = 'release', move_id = :m,"
                " grant_id = :g, due_at = run_at, resting = NULL, quarantine_code = NULL WHERE job_id = :j RETURNING 1",
                {"m": used.move_id, "g": grant.grant_id, "j": one.job_id},
            )


# ---------------------------------------------------------------------------------------------------------------------
# Repair


@pytest.fixture
def broken(ledger_in: LedgerIn) -> Iterator[Callable[[str], Store[Any]]]:
    """What makes the one ledger of a test, of an environment, with counts of jobs that are not there."""
    made: list[Store[Any]] = []

    def make(environment: str) -> Store[Any]:
        made.append(open_store(ledger_in(environment)))
        _break(made[-1])
        return made[-1]

    yield make
    for store in made:
        store.close()


def _break(store: Store[Any]) -> None:
    with store.transaction() as transaction:
        transaction.execute(GHOST)


def mend(store: Store[Any], digest: str, *, grant_id: int | None = None, operator: str = "ann") -> Any:
    permit = permission(Act.REPAIR, "ledger", executor=operator, reason="incident", plan=digest, grant_id=grant_id)
    return repair(store, operator=operator, reason="incident", expected=digest, permit=permit)


def doors(store: Store[Any]) -> list[tuple[str, str, int | None]]:
    with store.reading() as reading:
        rows = reading.execute(
            "SELECT event, actor, grant_id FROM holdfast_journal WHERE machine = 'MAINTENANCE' ORDER BY seq"
        )
    return [(event, actor, grant_id) for event, actor, grant_id in rows]


@pytest.mark.req("L-10")
def test_a_repair_in_dev_makes_its_own_grant(broken: Callable[[str], Store[Any]]) -> None:
    store = broken("dev")
    digest = plan(store).digest
    assert mend(store, digest).ok
    with store.reading() as reading:
        [grant] = reading.grants.page()
    assert (grant.action, grant.target, grant.consumed_by) == ("ledger.repair", "ledger", "ann")
    assert json.loads(grant.scope)["plan"] == digest
    assert doors(store) == [(event, "ann", grant.grant_id) for event in ("open", "repair", "shut")]
    assert check(store).violations == ()
    assert mend(store, plan(store).digest).acts == ()  # nothing to do, and nothing used up
    with store.reading() as reading:
        assert len(reading.grants.page()) == 1


@pytest.mark.req("L-04", "L-10", "L-12")
def test_a_repair_in_prod_needs_a_grant_for_that_very_plan(broken: Callable[[str], Store[Any]], tmp_path: Path) -> None:
    store, people = broken("prod"), People(tmp_path)
    people.register(store, "bob")
    digest = plan(store).digest
    refused(Reject.MISSING, mend, store, digest)
    what = Wanted(act=Act.REPAIR, target="ledger", environment="prod", executor="ann", plan=digest)
    grant = people.approve(store, requested(store, what), "bob")
    refused(Reject.WRONG_EXECUTOR, mend, store, digest, grant_id=grant.grant_id, operator="eve")
    refused(Reject.WRONG_PLAN, mend, store, "0" * 64, grant_id=grant.grant_id)
    assert doors(store) == []
    # The ledger changes, so the plan is another one: all of it is rolled back, and the grant is as good as before.
    edited = "UPDATE holdfast_machines SET digest = '{}' || substr(digest, {}) WHERE machine = 'JOB' RETURNING 1"
    with store.transaction() as transaction:
        assert transaction.execute(edited.format("another ", 1))
    with pytest.raises(PlanStaleError):
        mend(store, digest, grant_id=grant.grant_id)
    with store.transaction() as transaction:
        assert transaction.execute(edited.format("", len("another ") + 1))
    assert [row[0] for row in journal_of(store, grant.grant_id)] == ["request", "approve"]
    assert mend(store, digest, grant_id=grant.grant_id).ok
    assert doors(store) == [(event, "ann", grant.grant_id) for event in ("open", "repair", "shut")]
    assert journal_of(store, grant.grant_id)[-1] == ("consume", "consumed", "ann", "incident")
    _break(store)
    refused(Reject.ALREADY_CONSUMED, mend, store, digest, grant_id=grant.grant_id)


# ---------------------------------------------------------------------------------------------------------------------
# Restore


class Place:
    """A ledger of an environment with three jobs, its snapshot, and where it may be restored to."""

    def __init__(self, new_url: NewUrl, directory: Path, environment: str, kind: str = "sqlite") -> None:
        self.new_url, self.directory, self.kind = new_url, directory, kind
        self.people, self.clock = People(directory), VirtualClock()
        self.url = new_url(kind)
        with new_store(self.url, self.clock, environment=environment) as store:
            with store.transaction() as transaction:
                transaction.jobs.submit([Submission(operation="noop", payload="{}", key=str(n)) for n in range(3)])
            work(store, 2)
            with store.transaction() as transaction:
                assert transaction.executions.claim(Lease(owner="w", seconds=60))
            seal(store)

    def snapshot(self, *approvers: str, revoked: str | None = None) -> Path:
        path = self.directory / f"{uuid4().hex}.snapshot"
        with open_store(self.url, self.clock) as store:
            for name in approvers:
                self._register(store, name, first=approvers[0])
            if revoked:
                revoke_approver(store, revoked, actor="admin", reason="x")
            self.sha256 = create(store, path).trailer.sha256
        return path

    def _register(self, store: Store[Any], name: str, *, first: str) -> None:
        with store.reading() as reading:
            prod = reading.settings.read()["environment"] == "prod"
        if name == first or not prod:
            self.people.register(store, name)
            return
        manifest = sha256(self.people.public_key(name))
        what = Wanted(act=Act.APPROVER, target=name, environment="prod", executor="admin", manifest=manifest)
        grant = self.people.approve(store, requested(store, what), first)
        self.people.register(store, name, grant_id=grant.grant_id)

    def slip(self, *, by: str = "bob", signed_by: str | None = None, **changed: Any) -> Slip:
        given = {
            "action": "snapshot.restore", "target": self.sha256, "executor": "ann", "rollback_plan": "drop it",
            "reason": "the disk died", "approved_by": by, "ttl": HOUR, "now": self.clock(), **changed,
        }  # fmt: skip
        return write_slip(**given, key=self.people.key(signed_by) if signed_by else None)

    def restore(
        self, path: Path, slip: Slip | None, *, who: str = "ann", bootstrap: bool = False
    ) -> tuple[str, Restored]:
        url = self.new_url(self.kind)
        permission = RestoreRequest(who=who, why="restored", slip=slip, bootstrap=bootstrap)
        return url, restore(path, url, permission, clock=self.clock)

    def refused(self, code: str, path: Path, slip: Slip | None, *, who: str = "ann") -> GovernanceError:
        url = self.new_url(self.kind)
        permission = RestoreRequest(who=who, why="restored", slip=slip)
        error = refused(code, restore, path, url, permission, clock=self.clock)
        assert not Path(url.removeprefix("sqlite:///")).exists()
        return error


@EACH
@pytest.mark.req("L-10", "L-12")
def test_a_slip_becomes_a_used_grant_of_the_ledger_that_is_made(kind: str, new_url: NewUrl, tmp_path: Path) -> None:
    place = Place(new_url, tmp_path, "prod", kind)
    path = place.snapshot("bob")
    slip = place.slip(signed_by="bob")
    url, made = place.restore(path, slip)
    with open_store(url, place.clock) as store:
        with store.reading() as reading:
            [grant] = reading.grants.page(action=Act.RESTORE)
            journal = reading.journal.of(grant.grant_id, "GRANT")
            assert reading.grants.approvers().keys() == {"bob"}
        assert made.grant_id == grant.grant_id
        assert (grant.state, grant.action, grant.target) == ("consumed", "snapshot.restore", place.sha256)
        assert (grant.requested_by, grant.approved_by, grant.consumed_by) == ("ann", "bob", "ann")
        assert json.loads(grant.approved_via or "") == {"method": "key", "slip": msgspec.to_builtins(slip)}
        assert json.loads(grant.scope)["rollback_plan"] == "drop it"
        assert [(row.event, row.actor, row.reason) for row in journal] == [
            ("request", "ann", "the disk died"), ("approve", "bob", "the disk died"), ("consume", "ann", "restored"),
        ]  # fmt: skip
        assert doors(store) == [(event, "ann", grant.grant_id) for event in ("open", "restore", "shut")]
        assert check(store).violations == ()
        assert sealed_history(store).ok
        refused(
            Reject.ALREADY_CONSUMED, _authorise, store, grant.grant_id,
            Wanted(act=Act.RESTORE, target=place.sha256, environment="prod", executor="ann"),
        )  # fmt: skip


def _authorise(store: Store[Any], grant_id: int, what: Wanted) -> None:
    with store.transaction() as transaction:
        authorise(transaction, what, grant_id=grant_id, reason="again")


def test_in_stage_a_slip_needs_another_approver_and_no_signature(new_url: NewUrl, tmp_path: Path) -> None:
    place = Place(new_url, tmp_path, "stage")
    path = place.snapshot()
    place.refused(Reject.MISSING, path, None)
    place.refused("self_approval", path, place.slip(by="ann"))
    url, made = place.restore(path, place.slip())
    with open_store(url, place.clock) as store, store.reading() as reading:
        grant = reading.grants.get(made.grant_id or 0)
    assert grant is not None
    assert json.loads(grant.approved_via or "")["method"] == "claimed"


def test_in_dev_a_snapshot_needs_no_slip_and_keeps_one_that_is_given(new_url: NewUrl, tmp_path: Path) -> None:
    place = Place(new_url, tmp_path, "dev")
    path = place.snapshot()
    assert place.restore(path, None)[1].grant_id is None
    assert place.restore(path, place.slip(by="ann"))[1].grant_id == 1
    place.refused(Reject.WRONG_EXECUTOR, path, place.slip(), who="eve")


@pytest.mark.req("L-12", "L-13")
def test_in_prod_a_slip_needs_the_signature_of_an_approver_in_the_snapshot(new_url: NewUrl, tmp_path: Path) -> None:
    place = Place(new_url, tmp_path, "prod")
    path = place.snapshot("bob", "eve", revoked="eve")
    place.refused(Reject.MISSING, path, None)
    place.refused("approver_not_authenticated", path, place.slip())
    place.refused("approver_unknown", path, place.slip(signed_by="mallory"))
    place.refused("approver_unknown", path, place.slip(by="mallory", signed_by="mallory"))
    place.refused("approver_unknown", path, place.slip(by="eve", signed_by="eve"))
    place.refused("approver_unknown", path, place.slip(by="mallory", signed_by="bob"))
    place.refused("self_approval", path, place.slip(executor="bob", signed_by="bob"), who="bob")
    good = place.slip(signed_by="bob")
    for field, value in (("target", "0" * 64), ("executor", "eve"), ("expires_at", "2026-03-14T11:26:53.589793Z"),
                         ("nonce", "another"), ("rollback_plan", "none"), ("signature", "00" * 64)):  # fmt: skip
        place.refused("signature_invalid", path, msgspec.structs.replace(good, **{field: value}))
    swapped = msgspec.structs.replace(good, public_key=place.people.public_key("mallory"))
    place.refused("signature_invalid", path, swapped)
    place.refused(Reject.WRONG_CARRIER, path, place.slip(signed_by="bob", target="0" * 64))
    place.refused(Reject.WRONG_EXECUTOR, path, place.slip(signed_by="bob", executor="carl"))
    place.clock.advance(3600)
    place.refused(Reject.EXPIRED, path, good)
    assert place.restore(path, place.slip(signed_by="bob"))[1].grant_id == 4  # after those of bob and eve


def test_where_no_approver_was_ever_registered_the_first_key_needs_a_bootstrap_which_is_recorded(
    new_url: NewUrl, tmp_path: Path
) -> None:
    place = Place(new_url, tmp_path, "prod")
    path = place.snapshot()
    place.refused("approver_not_authenticated", path, place.slip())
    place.refused("bootstrap_required", path, place.slip(signed_by="bob"))
    url, made = place.restore(path, place.slip(signed_by="bob"), bootstrap=True)
    with open_store(url, place.clock) as store, store.reading() as reading:
        grant = reading.grants.get(made.grant_id or 0)
    assert grant is not None
    assert json.loads(grant.approved_via or "")["method"] == "bootstrap"


def test_a_snapshot_that_calls_itself_of_another_environment_is_refused(new_url: NewUrl, tmp_path: Path) -> None:
    place = Place(new_url, tmp_path, "prod")
    forged = forge(tmp_path / "forged", place.snapshot("bob"), lambda _: None, environment="dev")
    url = new_url("sqlite")
    with pytest.raises(SnapshotInvalidError) as refused:
        restore(forged, url, RestoreRequest(who="ann", why="x"), clock=place.clock)
    assert refused.value.context == {"kind": "environment"}


@pytest.mark.parametrize(
    "given, field",
    [
        ({"action": "ledger.repair"}, "action"),
        ({"target": " "}, "target"),
        ({"executor": "a\0"}, "executor"),
        ({"approved_by": ""}, "approver"),
        ({"rollback_plan": ""}, "rollback_plan"),
        ({"ttl": timedelta(0)}, "ttl"),
        ({"ttl": timedelta(days=31)}, "ttl"),
    ],
)
def test_an_incomplete_slip_is_not_written(given: dict[str, Any], field: str) -> None:
    slip = {"action": "snapshot.restore", "target": "0" * 64, "executor": "ann", "rollback_plan": "p", "reason": "r",
            "approved_by": "bob", "ttl": HOUR}  # fmt: skip
    with pytest.raises(InputError) as caught:
        write_slip(**{**slip, **given})
    assert caught.value.context["field"] == field


SLIP = Slip(
    action="snapshot.restore", target="0" * 64, executor="ann", rollback_plan="p", reason="r", approved_by="bob",
    issued_at="2030-01-01T00:00:00.000000Z", expires_at="2030-01-01T01:00:00.000000Z", nonce="n",
)  # fmt: skip


@pytest.mark.parametrize(
    "text, field",
    [
        (b"", None),
        (b"[]", None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
        ({"holdfast_slip": 2}, "holdfast_slip"),
        ({"executor": 7}, "executor"),
        ({"more": "words"}, None),
        ({"target": None}, "target"),
        ({"nonce": " "}, "nonce"),
        ({"reason": "a\0b"}, "reason"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"issued_at": "2030-01-01T00:00:00"}, "issued_at"),
        ({"expires_at": "2031-01-01T00:00:00.000000Z"}, "expires_at"),
        ({"signature": "00"}, "public_key"),
        ({"public_key": "00"}, "signature"),
    ],
)
def test_a_file_that_is_no_slip_is_refused(tmp_path: Path, text: bytes | dict[str, Any], field: str | None) -> None:
    path = tmp_path / "slip.json"
    sound = msgspec.to_builtins(SLIP)
    path.write_bytes(text if isinstance(text, bytes) else json.dumps({**sound, **text}).encode())
    with pytest.raises(SpecInvalidError) as caught:
        read_slip(path)
    assert (caught.value.exit_code, caught.value.context) == (2, {"path": str(path), "field": field})
    path.write_text(json.dumps(sound))
    assert read_slip(path) == SLIP


def test_a_missing_slip_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_slip(tmp_path / "missing")
    assert caught.value.context == {"path": str(tmp_path / "missing")}
