"""Forged grants: rows written with a SQL shell past the gateway are refused by the database, or by the judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.check.runner import check
from holdfast.core.authority import Doubt, Reject, Rejected, Wanted, approval_mark
from holdfast.core.errors import AuthorityError
from holdfast.core.governed import Grant
from holdfast.governance.approval import Identity, revoke_approver
from holdfast.governance.grants import approve, verdict_on
from holdfast.store import Store, open_store
from holdfast.store.enforcement import Refusal
from tests.audit.knife import without_triggers
from tests.enforcement.raw import DOOR, SHUT, Client
from tests.governance.granting import People, act, contents, requested, wanted
from tests.support.ledgers import new_store

pytestmark = pytest.mark.attack("sql")


class Forger:
    """An attacker with a SQL shell, and a ledger with a draft and an active grant for the same kind of act."""

    def __init__(self, store: Store[Any], people: People) -> None:
        self.store, self.people = store, people
        with store.reading() as reading:
            meta = reading.settings.read()
        self.prod, self.ledger_id = meta["environment"] == "prod", meta["ledger_id"]
        if self.prod:
            people.register(store, "bob")
        self.for_draft, self.for_active = wanted(store, "job:1"), wanted(store, "job:2")
        self.draft, self.active = requested(store, self.for_draft), requested(store, self.for_active)
        if self.prod:
            self.active = people.approve(store, self.active, "bob")
        else:
            self.active = approve(store, self.active.grant_id, Identity(name="bob"))

    @contextmanager
    def shell(self) -> Iterator[Client]:
        client = Client(self.store.url)
        try:
            yield client
            client.commit()
        finally:
            client.close()

    @contextmanager
    def unguarded(self) -> Iterator[Client]:
        """Yield a shell without the triggers that keep the columns of a grant; afterwards they are back."""
        with self.shell() as client, without_triggers(client):
            yield client

    def activate(self, **columns: object) -> None:
        """Turn the draft into an active grant, by a move that the triggers find nothing wrong with."""
        values = {"state": "active", "version": 2, "event": "approve", "actor": "mallory", "move_id": "raw", **columns}
        with self.shell() as client:
            sets = ", ".join(f"{name} = ?" for name in values)
            sql = f"UPDATE holdfast_grants SET {sets} WHERE grant_id = ?"
            assert client.changed(sql, *values.values(), self.draft.grant_id) == 1

    def change(self, sql: str, *params: object) -> None:
        """Change a row at rest: a grant only when its triggers are gone, an approver only under maintenance."""
        with self.shell() as client:
            assert client.refusal(sql, *params) in (Refusal.WRITE_ONCE, Refusal.GRANT_REQUIRED, Refusal.NEVER_DELETED)
        if sql.startswith("UPDATE holdfast_grants"):
            with self.unguarded() as client:
                assert client.changed(sql, *params) == 1
            return
        with self.shell() as client:
            client.run(DOOR)
            assert client.changed(sql, *params) == 1
            client.run(SHUT)

    @property
    def mark(self) -> str:
        return approval_mark(self.draft, self.ledger_id)


Forgery = Callable[[Forger], tuple[Wanted, Grant]]
# The environment, the doubt, the approver if the doubt is about one person, and how it is done.
FORGERIES: dict[str, tuple[str, Doubt, str | None, Forgery]] = {}


def forgery(environment: str, doubt: Doubt, approver: str | None = None) -> Callable[[Forgery], Forgery]:
    def listed(how: Forgery) -> Forgery:
        FORGERIES[f"{environment}: {how.__name__}"] = (environment, doubt, approver, how)
        return how

    return listed


# ---------------------------------------------------------------------------------------------------------------------
# A draft without an approval


@forgery("dev", Doubt.NO_APPROVER)
@forgery("stage", Doubt.NO_APPROVER)
@forgery("prod", Doubt.NO_APPROVER)
def activated_without_approval(it: Forger) -> tuple[Wanted, Grant]:
    it.activate()
    return it.for_draft, it.draft


@forgery("stage", Doubt.SELF_APPROVED)
@forgery("prod", Doubt.SELF_APPROVED)
def approved_by_the_requester(it: Forger) -> tuple[Wanted, Grant]:
    it.activate(actor="ann", approved_by="ann", approved_via='{"method":"self"}', move_id=it.mark)
    return it.for_draft, it.draft


@forgery("stage", Doubt.NO_METHOD)
@forgery("prod", Doubt.NO_METHOD)
def approved_without_a_word_of_how(it: Forger) -> tuple[Wanted, Grant]:
    it.activate(actor="bob", approved_by="bob", move_id=it.mark)
    return it.for_draft, it.draft


@forgery("stage", Doubt.NO_METHOD)
def approved_in_no_json(it: Forger) -> tuple[Wanted, Grant]:
    it.activate(actor="bob", approved_by="bob", approved_via="[" * 9999, move_id=it.mark)
    return it.for_draft, it.draft


@forgery("stage", Doubt.JOURNAL_DIFFERS)
def approved_by_another_move(it: Forger) -> tuple[Wanted, Grant]:
    it.activate(actor="bob", approved_by="bob", approved_via='{"method":"claimed"}')
    return it.for_draft, it.draft


@forgery("stage", Doubt.JOURNAL_DIFFERS)
def approved_in_the_name_of_another(it: Forger) -> tuple[Wanted, Grant]:
    it.activate(approved_by="bob", approved_via='{"method":"claimed"}', move_id=it.mark)
    return it.for_draft, it.draft


@forgery("prod", Doubt.CLAIM_ONLY)
def approved_by_a_word(it: Forger) -> tuple[Wanted, Grant]:
    it.activate(actor="bob", approved_by="bob", approved_via='{"method":"claimed"}', move_id=it.mark)
    return it.for_draft, it.draft


@forgery("prod", Doubt.SIGNATURE_INVALID, "bob")
def approved_by_an_invented_signature(it: Forger) -> tuple[Wanted, Grant]:
    via = json.dumps({"method": "key", "signature": "ab" * 64})
    it.activate(actor="bob", approved_by="bob", approved_via=via, move_id=it.mark)
    return it.for_draft, it.draft


@forgery("prod", Doubt.SIGNATURE_INVALID, "bob")
def approved_by_a_signature_under_another_grant(it: Forger) -> tuple[Wanted, Grant]:
    it.activate(actor="bob", approved_by="bob", approved_via=it.active.approved_via, move_id=it.mark)
    return it.for_draft, it.draft


@forgery("prod", Doubt.APPROVER_UNKNOWN, "mallory")
def approved_by_an_unknown_approver(it: Forger) -> tuple[Wanted, Grant]:
    via = json.dumps({"method": "key", "signature": it.people.signature(it.store, it.draft, "mallory")})
    it.activate(approved_by="mallory", approved_via=via, move_id=it.mark)
    return it.for_draft, it.draft


@forgery("prod", Doubt.APPROVER_KEY_DIFFERS)
def approved_by_an_approver_registered_by_hand(it: Forger) -> tuple[Wanted, Grant]:
    it.change(
        "INSERT INTO holdfast_approvers (name, public_key, added_by, reason, added_at) VALUES (?, ?, 'me', 'me', ?)",
        "mallory", it.people.public_key("mallory"), "2026-01-01T00:00:00.000000Z",
    )  # fmt: skip
    return approved_by_an_unknown_approver(it)


@forgery("prod", Doubt.APPROVER_KEY_DIFFERS)
def approved_by_an_approver_with_the_grant_of_another(it: Forger) -> tuple[Wanted, Grant]:
    it.change(
        "INSERT INTO holdfast_approvers (name, public_key, added_by, reason, added_at, grant_id)"
        " SELECT 'mallory', ?, added_by, reason, added_at, grant_id FROM holdfast_approvers WHERE name = 'bob'",
        it.people.public_key("mallory"),
    )
    return approved_by_an_unknown_approver(it)


# ---------------------------------------------------------------------------------------------------------------------
# An active grant that was changed since, or whose approver was


@forgery("prod", Doubt.SIGNATURE_INVALID, "bob")
def signature_altered(it: Forger) -> tuple[Wanted, Grant]:
    via = json.loads(it.active.approved_via or "")
    digit = via["signature"][0]
    via["signature"] = ("1" if digit == "0" else "0") + via["signature"][1:]
    sql = "UPDATE holdfast_grants SET approved_via = ? WHERE grant_id = ?"
    it.change(sql, json.dumps(via), it.active.grant_id)
    return it.for_active, it.active


@forgery("prod", Doubt.NO_METHOD)
def signature_taken_away(it: Forger) -> tuple[Wanted, Grant]:
    it.change("UPDATE holdfast_grants SET approved_via = NULL WHERE grant_id = ?", it.active.grant_id)
    return it.for_active, it.active


@forgery("stage", Doubt.JOURNAL_DIFFERS)
@forgery("prod", Doubt.APPROVER_UNKNOWN, "eve")
def approver_renamed(it: Forger) -> tuple[Wanted, Grant]:
    it.change("UPDATE holdfast_grants SET approved_by = 'eve' WHERE grant_id = ?", it.active.grant_id)
    return it.for_active, it.active


@forgery("prod", Doubt.APPROVER_UNKNOWN, "bob")
def approver_revoked_since(it: Forger) -> tuple[Wanted, Grant]:
    revoke_approver(it.store, "bob", actor="sec", reason="his key was stolen")
    return it.for_active, it.active


@forgery("prod", Doubt.APPROVER_REVOKED, "bob")
def approver_put_back_by_hand(it: Forger) -> tuple[Wanted, Grant]:
    revoke_approver(it.store, "bob", actor="sec", reason="his key was stolen")
    it.change("UPDATE holdfast_approvers SET revoked_at = NULL, revoked_by = NULL WHERE name = 'bob'")
    return it.for_active, it.active


@forgery("prod", Doubt.APPROVER_UNKNOWN, "bob")
def approver_deleted(it: Forger) -> tuple[Wanted, Grant]:
    it.change("DELETE FROM holdfast_approvers WHERE name = 'bob'")
    return it.for_active, it.active


@forgery("prod", Doubt.APPROVER_KEY_DIFFERS)
def key_exchanged(it: Forger) -> tuple[Wanted, Grant]:
    it.change("UPDATE holdfast_approvers SET public_key = ? WHERE name = 'bob'", it.people.public_key("mallory"))
    via = json.dumps({"method": "key", "signature": it.people.signature(it.store, it.active, "mallory")})
    it.change("UPDATE holdfast_grants SET approved_via = ? WHERE grant_id = ?", via, it.active.grant_id)
    return it.for_active, it.active


@forgery("stage", Doubt.JOURNAL_DIFFERS)
@forgery("prod", Doubt.SIGNATURE_INVALID, "bob")
def scope_changed_without_the_trigger(it: Forger) -> tuple[Wanted, Grant]:
    theirs = wanted(it.store, "job:2", executor="mallory")
    with it.unguarded() as client:
        scope = theirs.scope("none").text
        assert client.changed("UPDATE holdfast_grants SET scope = ? WHERE grant_id = ?", scope, it.active.grant_id) == 1
    return theirs, it.active


@forgery("stage", Doubt.JOURNAL_DIFFERS)
@forgery("prod", Doubt.SIGNATURE_INVALID, "bob")
def time_limit_put_off_without_the_trigger(it: Forger) -> tuple[Wanted, Grant]:
    with it.unguarded() as client:
        sql = "UPDATE holdfast_grants SET expires_at = '2999-01-01T00:00:00.000000Z' WHERE grant_id = ?"
        assert client.changed(sql, it.active.grant_id) == 1
    return it.for_active, it.active


ALSO_ON_POSTGRES = (
    "stage: activated_without_approval",
    "prod: signature_altered",
    "prod: approver_put_back_by_hand",
    "prod: scope_changed_without_the_trigger",
)


@pytest.mark.req("L-12", "L-13")
@pytest.mark.parametrize(
    "name, kind",
    [(name, "sqlite") for name in FORGERIES]
    + [pytest.param(name, "pg", marks=pytest.mark.pg) for name in ALSO_ON_POSTGRES],
)
def test_a_forged_grant_permits_nothing(name: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    environment, doubt, approver, how = FORGERIES[name]
    with new_store(request.getfixturevalue(f"{kind}_url"), environment=environment) as store:
        what, grant = how(Forger(store, People(tmp_path)))
        before = contents(store)
        with store.reading() as reading:
            verdict = verdict_on(reading, what, grant.grant_id)
        assert isinstance(verdict, Rejected)
        assert verdict.doubt is not None
        assert (verdict.code, verdict.doubt.code) == (Reject.FORGED, doubt), verdict
        assert approver in (None, verdict.doubt.approver)
        with pytest.raises(AuthorityError) as caught:
            act(store, what, grant.grant_id)
        assert caught.value.code == Reject.FORGED
        if environment != "dev":  # where it is not named, and is the only one
            with pytest.raises(AuthorityError) as caught:
                act(store, what)
            assert caught.value.code == Reject.FORGED
        assert contents(store) == before


NEVER_CHANGED = {
    "action": "'job.retry'",
    "target": "'*'",
    "scope": "'{}'",
    "requested_by": "'eve'",
    "requested_via": "'{}'",
    "expires_at": "'2999-01-01T00:00:00.000000Z'",
}


@pytest.mark.req("L-12")
def test_the_scope_of_a_requested_grant_cannot_be_changed(stage_url: str, tmp_path: Path) -> None:
    with open_store(stage_url) as store:
        it = Forger(store, People(tmp_path))
    client = Client(stage_url)
    where = "WHERE grant_id = ?"
    used = f"UPDATE holdfast_grants SET state = 'consumed', consumed_by = 'x' {where}"
    used_draft = (
        "UPDATE holdfast_grants SET state = 'consumed', consumed_by = 'x', event = 'consume', move_id = 'raw',"
        f" version = version + 1 {where}"
    )
    try:
        for grant in (it.draft, it.active):
            for column, value in NEVER_CHANGED.items():
                sql = f"UPDATE holdfast_grants SET {column} = {value} {where}"
                assert client.refusal(sql, grant.grant_id) == "HF006", column
            assert client.refusal(used, grant.grant_id) == "HF008"
            assert client.refusal(f"DELETE FROM holdfast_grants {where}", grant.grant_id) == "HF003"
        assert client.refusal(used_draft, it.draft.grant_id) == "HF001"
    finally:
        client.rollback()
        client.close()


# -- used past the gateway --------------------------------------------------------------------------------------------

# The approval itself was genuine: who approved is revoked since, which takes nothing from what was approved before.
GENUINE = ("prod: approver_revoked_since", "prod: approver_put_back_by_hand")
FOUND = [name for name in FORGERIES if name not in GENUINE and not name.startswith("dev")]


def found_in(store: Store[Any]) -> list[str]:
    return [one.subject for one in check(store, only=["grants_authentic"]).violations]


@pytest.mark.req("L-12", "L-13")
@pytest.mark.parametrize("name", FOUND)
def test_a_forged_grant_is_found_by_check(name: str, sqlite_url: str, tmp_path: Path) -> None:
    """A client that may write can use up a grant without the gateway: no database verifies a signature."""
    environment, _, _, how = FORGERIES[name]
    with new_store(sqlite_url, environment=environment) as store:
        _, grant = how(Forger(store, People(tmp_path)))
        assert f"GRANT {grant.grant_id}" in found_in(store)
        client = Client(store.url)
        sql = "UPDATE holdfast_grants SET state = 'consumed', consumed_by = 'mallory', event = 'consume',"
        sql += " actor = 'mallory', move_id = 'used', version = version + 1 WHERE grant_id = ?"
        assert client.changed(sql, grant.grant_id) == 1
        client.commit()
        client.close()
        assert f"GRANT {grant.grant_id}" in found_in(store)


@pytest.mark.parametrize("environment", ["dev", "stage", "prod"])
def test_a_correctly_approved_grant_is_accepted(empty_url: str, environment: str, tmp_path: Path) -> None:
    with new_store(empty_url, environment=environment) as store:
        it = Forger(store, People(tmp_path))
        assert found_in(store) == []
        act(store, it.for_active, it.active.grant_id)
        assert found_in(store) == []


@pytest.mark.parametrize("name", GENUINE)
def test_an_approver_who_is_revoked_takes_nothing_from_earlier_approvals(
    name: str, sqlite_url: str, tmp_path: Path
) -> None:
    environment, _, _, how = FORGERIES[name]
    with new_store(sqlite_url, environment=environment) as store:
        how(Forger(store, People(tmp_path)))
        assert [subject for subject in found_in(store) if subject.startswith("GRANT")] == []
        assert ("APPROVER bob" in found_in(store)) == (name == "prod: approver_put_back_by_hand")
