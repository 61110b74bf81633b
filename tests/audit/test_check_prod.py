"""What `check` finds of attacks by raw SQL on the governance of a prod ledger that the database cannot refuse.

Invariants: each attack is legal for the triggers, or goes through the maintenance door; without the attack nothing is
found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.check.runner import check
from holdfast.core.authority import Act, Wanted, approval_mark
from holdfast.core.governed import Grant
from holdfast.core.machines import GRANT
from holdfast.core.selection import candidates_hash
from holdfast.governance.quarantine import add
from holdfast.governance.releases import release_many
from holdfast.store import Store, Submission, open_store
from holdfast.store.enforcement import Refusal
from holdfast.store.tables import table_named
from tests.enforcement.raw import DOOR, SHUT, Client, Hand
from tests.governance.granting import People, approve_in_prod, requested, wanted


class Prod:
    """A prod ledger with an approver, quarantined jobs, and an active grant; and a client with plain DML."""

    def __init__(self, store: Store[Any], people: People) -> None:
        self.store, self.people = store, people
        approve_in_prod(store, requested(store, wanted(store, "job:77")).grant_id)
        with store.transaction() as transaction:
            made = transaction.jobs.submit([Submission(operation="noop", payload="{}") for _ in range(4)], actor="c")
        self.jobs = [one.job_id for one in made]
        for job_id in self.jobs:
            add(store, job_id, "http_401", operator="ann", reason="the key expired")
        self.client = Client(store.url)
        self.hand = Hand(self.client)
        with store.reading() as reading:
            self.ledger_id = reading.settings.read()["ledger_id"]

    def written(self, what: Wanted, via: dict[str, Any], approved_by: str = "bob") -> Grant:
        """Write an approved and consumed grant by hand, in legal moves."""
        draft = requested(self.store, what, requester="mallory")
        mark = approval_mark(draft, self.ledger_id)
        for event, target, columns in (
            ("approve", "active", {"approved_by": approved_by, "approved_via": text(via), "move_id": mark}),
            ("consume", "consumed", {"consumed_by": "mallory", "move_id": self.hand.unique("used")}),
        ):
            values = {"state": target, "event": event, "actor": approved_by, **columns}
            sets = ", ".join(f"{name} = ?" for name in values)
            sql = f"UPDATE holdfast_grants SET {sets}, version = version + 1 WHERE grant_id = ?"
            assert self.client.changed(sql, *values.values(), draft.grant_id) == 1
        return draft

    def through_the_door(self, sql: str, *params: object) -> None:
        self.client.run(DOOR)
        assert self.client.changed(sql, *params) == 1
        self.client.run(SHUT)

    def found(self) -> set[tuple[str, str]]:
        return {(one.invariant, one.subject) for one in check(self.store).violations}


def text(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


@pytest.fixture
def prod(prod_url: str, tmp_path: Path) -> Iterator[Prod]:
    with open_store(prod_url) as store:
        made = Prod(store, People(tmp_path))
        yield made
        made.client.close()


# -- grants that were written by hand ---------------------------------------------------------------------------------

GRANTS: dict[str, Callable[[Prod], Grant]] = {}


def by_hand(attack: Callable[[Prod], Grant]) -> Callable[[Prod], Grant]:
    GRANTS[attack.__name__] = attack
    return attack


@by_hand
def approved_by_a_claim(it: Prod) -> Grant:
    return it.written(wanted(it.store), {"method": "claimed"})


@by_hand
def approved_by_a_console_that_does_not_sign(it: Prod) -> Grant:
    return it.written(wanted(it.store), {"method": "console"})


@by_hand
def approved_by_an_invented_signature(it: Prod) -> Grant:
    return it.written(wanted(it.store), {"method": "key", "signature": "ab" * 64})


@by_hand
def approved_by_a_role_that_is_not_one(it: Prod) -> Grant:
    # With another text than that of Holdfast, for which PostgreSQL compares the role with the session.
    via = {"method": "role"} if it.store.dialect == "sqlite" else {"method": "role", "more": 1}
    return it.written(wanted(it.store), via)


@by_hand
def approved_as_if_it_were_the_first_approver(it: Prod) -> Grant:
    what = Wanted(act=Act.APPROVER, target="mallory", environment="prod", executor="mallory", manifest="0" * 64)
    return it.written(what, {"method": "bootstrap"}, "mallory")


@by_hand
def approved_as_if_a_registration_were_free(it: Prod) -> Grant:
    what = Wanted(act=Act.APPROVER, target="mallory", environment="prod", executor="mallory", manifest="0" * 64)
    return it.written(what, {"method": "free"}, "mallory")


@by_hand
def approved_under_a_grant_for_another_act(it: Prod) -> Grant:
    with it.store.reading() as reading:
        other = reading.grants.page(action=Act.APPROVER)[0].grant_id
    return it.written(wanted(it.store, f"job:{it.jobs[0]}"), {"grant_id": other, "method": "grant"}, "mallory")


@by_hand
def approved_under_a_grant_for_other_jobs(it: Prod) -> Grant:
    target = f"quarantine:{candidates_hash(it.jobs[:2])}"
    what = Wanted(act=Act.RELEASE_MANY, target=target, environment="prod", executor="ann")
    parent = approve_in_prod(it.store, requested(it.store, what).grant_id)
    release_many(it.store, it.jobs[:2], operator="ann", reason="renewed", grant_id=parent.grant_id)
    assert it.found() == set()
    under = {"grant_id": parent.grant_id, "method": "grant"}
    return it.written(wanted(it.store, f"job:{it.jobs[2]}"), under, "mallory")


@by_hand
def written_for_dev(it: Prod) -> Grant:
    dev = Wanted(act=Act.RELEASE, target="job:1", environment="dev", executor="mallory")
    scope = dev.scope("none").text
    grant = it.hand.born(GRANT, action="job.release", target="job:1", scope=scope, expires_at="2999-01-01T00:00:00Z")
    it.client.commit()
    it.client.begin()
    with it.store.reading() as reading:
        draft = reading.grants.get(grant)
    assert draft is not None
    for event, state, columns in (
        ("approve", "active", {"approved_by": "mallory", "approved_via": '{"method":"self"}'}),
        ("consume", "consumed", {"consumed_by": "mallory"}),
    ):
        assert it.client.changed(*it.hand.move(GRANT, grant, event, state, 1, **columns)) == 1
    return draft


@pytest.mark.attack("sql")
@pytest.mark.parametrize("name", GRANTS)
def test_a_grant_that_was_written_by_hand_is_found(prod: Prod, name: str) -> None:
    assert prod.found() == set()
    grant = GRANTS[name](prod)
    prod.client.commit()
    assert ("grants_authentic", f"GRANT {grant.grant_id}") in prod.found()


@pytest.mark.attack("sql")
def test_a_role_approves_only_as_the_role_of_its_session(new_postgres_ledger: str) -> None:
    client = Client(new_postgres_ledger)
    hand = Hand(client)
    draft = hand.born(GRANT)
    move = {"approved_by": "bob", "approved_via": '{"method":"role"}'}
    assert client.refusal(*hand.move(GRANT, draft, "approve", "active", 1, **move)) == Refusal.WRONG_ROLE
    move["approved_by"] = client.run("SELECT session_user::text")[0][0]
    assert client.refusal(*hand.move(GRANT, draft, "approve", "active", 1, **move)) is None
    client.close()


# -- what is rewritten through the door -------------------------------------------------------------------------------

LAST = "UPDATE holdfast_{0} SET {1} = 'rewritten' WHERE {2} = (SELECT max({2}) FROM holdfast_{0})"
TIME = "'2026-01-01T00:00:00.000000Z'"
REQUESTED = {
    "calls": {
        "operation_version": "'9.9.9'", "client": "'mallory'", "key": "'taken'", "max_attempts": "99",
        "replay_attempts": "99", "payload": "'[]'", "digest": "'0'", "replaces": "1", "created_at": TIME,
    },
    "jobs": {"operation": "'other'", "queue": "'other'", "priority": "9", "run_at": TIME},
}  # fmt: skip
REWRITES = {
    f"{table}.{column}": LAST.format(table, column, "job_id").replace("'rewritten'", value)
    for table, columns in REQUESTED.items()
    for column, value in columns.items()
} | {
    f"{table}.{column}": LAST.format(table, column, key)
    for table, key, columns in (
        ("jobs", "job_id", "event actor reason result last_error_code last_error_message quarantine_code"),
        ("grants", "grant_id", "approved_by approved_via actor event reason action target requested_by"),
        ("approvers", "name", "public_key added_by reason"),
    )
    for column in columns.split()
}


@pytest.mark.attack("sql")
@pytest.mark.parametrize("what", REWRITES)
def test_evidence_that_is_rewritten_through_the_door_is_found(prod: Prod, what: str) -> None:
    prod.through_the_door(REWRITES[what])
    prod.client.commit()
    found = prod.found()
    assert {subject.split()[0] for invariant, subject in found if invariant == "grants_authentic"} >= {"MAINTENANCE"}


@pytest.mark.attack("sql")
def test_a_job_that_is_exchanged_through_the_door_is_found(prod: Prod) -> None:
    """Deleting a row and inserting it anew is a rewrite that no UPDATE trigger sees."""
    job, client = prod.jobs[0], prod.client
    names = table_named("jobs").names
    [row] = client.run(f"SELECT {', '.join(names)} FROM holdfast_jobs WHERE job_id = ?", job)
    values = [("poison" if name == "quarantine_code" else value) for name, value in zip(names, row, strict=True)]
    client.run(DOOR)
    client.run("DELETE FROM holdfast_jobs WHERE job_id = ?", job)
    client.run(f"INSERT INTO holdfast_jobs ({', '.join(names)}) VALUES ({', '.join('?' for _ in names)})", *values)
    client.run(SHUT)
    client.commit()
    assert "MAINTENANCE" in {subject.split()[0] for _, subject in prod.found()}


@pytest.mark.attack("sql")
def test_an_approver_who_is_exchanged_through_the_door_is_found(prod: Prod) -> None:
    prod.through_the_door("UPDATE holdfast_approvers SET public_key = ?", prod.people.public_key("mallory"))
    prod.client.commit()
    assert ("grants_authentic", "APPROVER bob") in prod.found()
    prod.client.begin()
    prod.through_the_door("DELETE FROM holdfast_approvers")
    prod.client.commit()
    assert ("grants_authentic", "APPROVER bob") in prod.found()
