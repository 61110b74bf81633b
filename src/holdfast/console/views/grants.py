"""Grants: what waits for an approver, what each permits in its exact words, and its history.

Invariants: a grant past its expiry is shown as expired, whatever its record says; who may approve is said by the rules
of the environment, not decided here.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.environments import DEV, PROD
from holdfast.core.errors import RecordNotFoundError
from holdfast.core.governed import Grant
from holdfast.core.journal import JournalRow
from holdfast.core.machines import GRANT, GrantState
from holdfast.governance.approval import environment_of
from holdfast.store.transaction import Reading

PAGE = 50
TONES = {
    GrantState.DRAFT: "attention",
    GrantState.ACTIVE: "succeeded",
    GrantState.CONSUMED: "pending",
    GrantState.REVOKED: "failed",
    GrantState.EXPIRED: "pending",
}
WORDS = {
    GrantState.DRAFT: "waits for approval",
    GrantState.ACTIVE: "approved",
    GrantState.CONSUMED: "used",
    GrantState.REVOKED: "revoked",
    GrantState.EXPIRED: "expired",
}
OPEN = frozenset({GrantState.DRAFT, GrantState.ACTIVE})


class GrantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A grant with its state at this time."""

    grant: Grant
    state: GrantState
    words: str
    tone: str


class GrantsView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of grants, newest first; those that wait for an approver are listed apart."""

    now: datetime
    drafts: tuple[GrantRow, ...]
    rows: tuple[GrantRow, ...]
    older: int | None  # the id below which the next page begins


class GrantView(msgspec.Struct, frozen=True, kw_only=True):
    """One grant: what it permits, in exact words, and what happened to it."""

    now: datetime
    row: GrantRow
    scope: tuple[tuple[str, str], ...]
    history: tuple[JournalRow, ...]
    approval: str  # who may approve, in words
    environment: str
    approved_how: str | None


def _row(grant: Grant, now: datetime) -> GrantRow:
    state = GrantState.EXPIRED if grant.state in OPEN and grant.expires_at <= now else grant.state
    return GrantRow(grant=grant, state=state, words=WORDS[state], tone=TONES[state])


def grants_view(reading: Reading, now: datetime, *, before: int | None = None) -> GrantsView:
    """Return the grants that wait, and a page of all."""
    drafts = reading.grants.page(state=GrantState.DRAFT, limit=PAGE) if before is None else []
    found = reading.grants.page(before=before, limit=PAGE + 1)
    return GrantsView(
        now=now,
        drafts=tuple(_row(grant, now) for grant in drafts),
        rows=tuple(_row(grant, now) for grant in found[:PAGE]),
        older=found[PAGE - 1].grant_id if len(found) > PAGE else None,
    )


def grant_view(reading: Reading, grant_id: int, now: datetime) -> GrantView:
    """Return a grant; raise RecordNotFoundError if it does not exist."""
    grant = reading.grants.get(grant_id)
    if grant is None:
        raise RecordNotFoundError(
            f"There is no grant {grant_id}.", next_step="See all grants under /grants.", context={"grant_id": grant_id}
        )
    environment = environment_of(reading)
    who = {
        DEV: "In dev every person may approve, also the requester.",
        PROD: "In prod another person than the requester must approve, known by a key, a role or this console.",
    }.get(environment, "In stage every person except the requester may approve.")
    via = msgspec.json.decode(grant.approved_via or "{}")
    return GrantView(
        now=now,
        row=_row(grant, now),
        scope=tuple(_scope(grant)),
        history=tuple(reversed(reading.journal.of(grant_id, GRANT.name))),
        approval=who,
        environment=environment,
        approved_how=via.get("method") if isinstance(via, dict) else None,
    )


def _scope(grant: Grant) -> list[tuple[str, str]]:
    """Return what a grant permits, as pairs of words."""
    scope = msgspec.json.decode(grant.scope)
    if not isinstance(scope, dict):
        return []
    return [
        (str(name).replace("_", " "), value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in scope.items()
        if value not in (None, "", [], {})
    ]
