"""Attacks on the governance of a prod ledger by raw SQL: its environment, its approvers, and the approvals of grants.

Invariants: the attacker is a client with plain DML, which may open the maintenance door too; what the door allows is
journalled, and tried in the tests of `check`.
"""

from __future__ import annotations

import pytest

from holdfast.core.authority import Act
from holdfast.core.machines import GRANT, GrantState
from holdfast.store.enforcement import Refusal
from holdfast.store.tables import STRICTER
from tests.enforcement.raw import AT, DOOR, LATER, Client, Hand
from tests.enforcement.test_refusals import untouched

KEY, OTHER = "a" * 64, "b" * 64
ADD = (
    "INSERT INTO holdfast_approvers (name, public_key, added_by, reason, grant_id, added_at)"
    f" VALUES (?, ?, 'ann', 'a test', ?, '{AT}')"
)
REVOKE = f"UPDATE holdfast_approvers SET revoked_at = '{LATER}', revoked_by = 'ann' WHERE name = ?"


# -- how strict a ledger is -------------------------------------------------------------------------------------------


@pytest.mark.attack("sql")
@pytest.mark.parametrize("name", STRICTER)
def test_the_strictness_of_a_ledger_cannot_be_lowered_by_rewriting_its_setting(client: Client, name: str) -> None:
    strictest, mildest = STRICTER[name][-1], STRICTER[name][0]
    client.run(DOOR)
    client.run("UPDATE holdfast_meta SET value = ? WHERE name = ?", strictest, name)
    client.run("INSERT INTO holdfast_meta (name, value) VALUES ('mine', ?)", mildest)
    acts: list[tuple[str, str]] = [
        ("DELETE FROM holdfast_meta WHERE name = ?", Refusal.NEVER_DELETED),
        ("UPDATE holdfast_meta SET name = 'gone' WHERE name = ?", Refusal.WRITE_ONCE),
        (f"UPDATE holdfast_meta SET value = '{mildest}' WHERE name = ?", Refusal.NOT_MONOTONE),
        (f"UPDATE holdfast_meta SET name = '{name}' WHERE name = 'mine' AND ? <> ''", Refusal.WRITE_ONCE),
    ]
    upsert = f"INSERT INTO holdfast_meta (name, value) VALUES (?, '{mildest}') ON CONFLICT (name)"
    acts.append((f"{upsert} DO UPDATE SET value = excluded.value", Refusal.NOT_MONOTONE))
    if client.dialect == "sqlite":
        acts += [
            (f"{verb} INTO holdfast_meta (name, value) VALUES (?, '{mildest}')", Refusal.NOT_MONOTONE)
            for verb in ("REPLACE", "INSERT OR REPLACE")
        ]
        replace = f"UPDATE OR REPLACE holdfast_meta SET name = '{name}' WHERE name = 'mine' AND ? <> ''"
        acts.append((replace, Refusal.WRITE_ONCE))
    with untouched(client, "holdfast_meta"):
        for sql, refusal in acts:
            assert client.refusal(sql, name) == refusal, sql


# -- approvers --------------------------------------------------------------------------------------------------------


def used(hand: Hand, act: str, name: str) -> int:
    """Write a grant for an act on an approver, walk it to consumed, and return its id."""
    grant = hand.born(GRANT, action=act, target=name)
    for event, state in (("approve", GrantState.DRAFT), ("consume", GrantState.ACTIVE)):
        hand.take(GRANT, grant, GRANT.path(event, state))
    return grant


@pytest.mark.attack("sql")
def test_an_approver_is_registered_only_by_a_grant_for_that_name(client: Client, hand: Hand) -> None:
    active = hand.put(GRANT, GrantState.ACTIVE)
    wrong = (None, 999, active, hand.consumed_grant(), used(hand, Act.APPROVER, "eve"), used(hand, Act.DISMISS, "bob"))
    own = used(hand, Act.APPROVER, "bob")
    with untouched(client, "holdfast_approvers"):
        for grant in wrong:
            assert client.refusal(ADD, "bob", KEY, grant) == Refusal.GRANT_REQUIRED, grant
        revoked = ADD.replace("added_at)", "added_at, revoked_at)").replace(f"'{AT}')", f"'{AT}', '{AT}')")
        assert client.refusal(revoked, "bob", KEY, own) == Refusal.ILLEGAL_BIRTH
    assert client.refusal(ADD, "bob", KEY, own) is None


@pytest.mark.attack("sql")
def test_the_key_of_an_approver_is_not_exchanged(client: Client, hand: Hand) -> None:
    registration = used(hand, Act.APPROVER, "bob")
    client.run(ADD, "bob", KEY, registration)
    changes = {
        "public_key": OTHER, "name": "eve", "added_by": "eve", "reason": "x", "added_at": LATER, "revoked_by": "eve",
        "grant_id": used(hand, Act.APPROVER, "bob"),
    }  # fmt: skip
    with untouched(client, "holdfast_approvers"):
        for column, value in changes.items():
            for also in ("", f", public_key = '{OTHER}'"):
                if also and column == "public_key":
                    continue
                change = f"UPDATE holdfast_approvers SET {column} = ?{also} WHERE name = 'bob'"
                assert client.refusal(change, value) == Refusal.WRITE_ONCE, change
        assert client.refusal("UPDATE holdfast_approvers SET grant_id = NULL") == Refusal.WRITE_ONCE
        assert client.refusal("DELETE FROM holdfast_approvers") == Refusal.NEVER_DELETED
        if client.dialect == "sqlite":
            replace = ADD.replace("INSERT", "REPLACE")
            assert client.refusal(replace, "bob", OTHER, changes["grant_id"]) == Refusal.ILLEGAL_BIRTH
        else:
            assert client.refusal("TRUNCATE holdfast_approvers") == Refusal.NEVER_DELETED
    assert client.refusal("UPDATE holdfast_approvers SET public_key = public_key WHERE name = 'bob'") is None


@pytest.mark.attack("sql")
def test_an_approver_is_revoked_and_registered_again_only_by_grants(client: Client, hand: Hand) -> None:
    client.run(ADD, "bob", KEY, used(hand, Act.APPROVER, "bob"))
    with untouched(client, "holdfast_approvers"):
        assert client.refusal(REVOKE, "bob") == Refusal.GRANT_REQUIRED
    used(hand, Act.DISMISS, "bob")
    with untouched(client, "holdfast_approvers"):
        changed = REVOKE.replace("revoked_by = 'ann'", f"revoked_by = 'ann', public_key = '{OTHER}'")
        assert client.refusal(changed, "bob") == Refusal.WRITE_ONCE
    assert client.refusal(REVOKE, "bob") is None
    back = "UPDATE holdfast_approvers SET revoked_at = NULL, revoked_by = NULL, public_key = ?, grant_id = ?"
    of_eve = used(hand, Act.APPROVER, "eve")
    with untouched(client, "holdfast_approvers"):
        alive = "UPDATE holdfast_approvers SET revoked_at = NULL, revoked_by = NULL"
        assert client.refusal(alive) == Refusal.WRITE_ONCE
        assert client.refusal(REVOKE.replace(LATER, AT), "bob") == Refusal.WRITE_ONCE
        for grant in (of_eve, of_eve + 1):
            assert client.refusal(back, OTHER, grant) == Refusal.GRANT_REQUIRED
    assert client.refusal(back, OTHER, used(hand, Act.APPROVER, "bob")) is None
