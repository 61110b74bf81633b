"""What tests of grants share: a ledger of some environment, people with keys, and a governed act of no consequence.

Invariants: `act` writes one job, in the transaction that consumes its grant; every name used here has a key of that
name in the directory that was given.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from holdfast.audit.seals.keys import make_keys, public_key_text, signature_of
from holdfast.core.authority import KEY, Act, Wanted, approval_text
from holdfast.core.governed import Grant
from holdfast.governance.approval import Identity, register_approver
from holdfast.governance.grants import approve, authorise, request
from holdfast.store import Store, Submission

WHY = "a test"


def wanted(store: Store[Any], target: str = "job:1", /, **fields: Any) -> Wanted:
    """Return what is wanted: by default ann wants to release a job."""
    with store.reading() as reading:
        environment = reading.settings.read()["environment"]
    return Wanted(**{"act": Act.RELEASE, "target": target, "environment": environment, "executor": "ann", **fields})


def requested(store: Store[Any], what: Wanted, *, requester: str = "ann", **given: Any) -> Grant:
    """Request a grant."""
    return request(store, what, requester=requester, rollback_plan="quarantine it again", reason=WHY, **given)


def act(store: Store[Any], what: Wanted, grant_id: int | None = None) -> int:
    """Do what a grant is for: here, submit a job under the target as its key."""
    with store.transaction() as transaction:
        used = authorise(transaction, what, grant_id=grant_id, reason="it is time")
        transaction.jobs.submit([Submission(operation="noop", payload="{}", key=what.target)])
        return used


class People:
    """People, each with a key that is made at the first use of the name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def key(self, name: str) -> Path:
        path = self._directory / name
        if not path.exists():
            make_keys(path)
        return path

    def public_key(self, name: str) -> str:
        return public_key_text(Path(f"{self.key(name)}.pub"))

    def register(self, store: Store[Any], name: str, **given: Any) -> None:
        """Register an approver; the first one of a prod ledger by bootstrap."""
        with store.reading() as reading:
            prod = reading.settings.read()["environment"] == "prod"
            given.setdefault("bootstrap", prod and reading.grants.bootstrap() is None and "grant_id" not in given)
        register_approver(store, name, self.public_key(name), actor="admin", reason=WHY, **given)

    def signature(self, store: Store[Any], grant: Grant, name: str) -> str:
        with store.reading() as reading:
            ledger_id = reading.settings.read()["ledger_id"]
        return signature_of(approval_text(grant, ledger_id), self.key(name))

    def approve(self, store: Store[Any], grant: Grant, name: str) -> Grant:
        signature = self.signature(store, grant, name)
        return approve(store, grant.grant_id, Identity(name=name, method=KEY, signature=signature))


KEYS = tempfile.TemporaryDirectory()  # of this process


def approve_in_prod(store: Store[Any], grant_id: int, name: str = "bob", reason: str | None = None) -> Grant:
    """Approve a grant of a prod ledger with a key, which is registered by bootstrap if it is not yet."""
    people = People(Path(KEYS.name))
    with store.reading() as reading:
        draft, known = reading.grants.get(grant_id), reading.grants.approvers()
    assert draft is not None
    if name not in known:
        people.register(store, name)
    identity = Identity(name=name, method=KEY, signature=people.signature(store, draft, name))
    return approve(store, grant_id, identity, reason=reason)


def journal_of(store: Store[Any], grant_id: int) -> list[tuple[str, str, str, str | None]]:
    """What the journal says of a grant: event, state, who and why."""
    with store.reading() as reading:
        return [(row.event, row.target, row.actor, row.reason) for row in reading.journal.of(grant_id, "GRANT")]


def contents(store: Store[Any]) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that a refused act could have written."""
    tables = (
        "holdfast_grants",
        "holdfast_approvers",
        "holdfast_calls",
        "holdfast_jobs",
        "holdfast_journal",
        "holdfast_leases",
    )
    with store.reading() as reading:
        return {table: sorted(reading.execute(f"SELECT * FROM {table}"), key=repr) for table in tables}
