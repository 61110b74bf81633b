"""Grants: what waits for an approver, what each permits in its exact words, and its history.

Invariants: a grant past its expiry is shown as expired, whatever its record says; who may approve is said by the rules
of the environment, not decided here.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import msgspec

from holdfast.console.views.links import path
from holdfast.console.views.next_steps import NextStep
from holdfast.console.views.replays import draft_again
from holdfast.core.authority import Act, effective_state, recorded_via, scope_of
from holdfast.core.environments import DEV, PROD
from holdfast.core.errors import RecordNotFoundError
from holdfast.core.governed import Grant
from holdfast.core.journal import JournalRow
from holdfast.core.machines import GRANT, GrantState
from holdfast.core.records import Job
from holdfast.governance.approval import environment_of
from holdfast.governance.granted import Granted, granted
from holdfast.governance.quarantine import JOB_TARGET
from holdfast.governance.releases import MANY_MAX
from holdfast.governance.switches import PAUSE_TARGET, TARGET
from holdfast.store.transaction import Reading

PAGE = 50
LOOK_MAX = 1_000  # grants that a page looks at
EXAMPLES = 5
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


class GrantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A grant with its state at this time."""

    grant: Grant
    state: GrantState
    words: str
    tone: str
    permits: str


class GrantsView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of grants, newest first; those that wait for an approver are listed apart."""

    now: datetime
    drafts: tuple[GrantRow, ...]
    rows: tuple[GrantRow, ...]
    older: int | None  # the id below which the next page begins
    folded: int  # grants of single jobs, which an act on many made under its own grant: they are not listed


class GrantView(msgspec.Struct, frozen=True, kw_only=True):
    """One grant: what it permits, in exact words, and what happened to it."""

    now: datetime
    row: GrantRow
    scope: tuple[tuple[str, str], ...]
    history: tuple[JournalRow, ...]
    approval: str  # who may approve, in words
    environment: str
    approved_how: object  # the method, such as console
    under: object  # the id of the grant of an act on many, of which this one is a part
    about: Granted
    executor: str
    rollback_plan: str
    requested_why: str
    step: NextStep | None  # the page that uses it; None if it cannot be used now, or the console has no such page
    operations: dict[str, int]  # of the jobs that it names
    examples: tuple[Job, ...]


def _row(grant: Grant, now: datetime, about: Granted) -> GrantRow:
    state = effective_state(grant, now)
    return GrantRow(grant=grant, state=state, words=WORDS[state], tone=TONES[state], permits=about.words)


def grants_view(reading: Reading, now: datetime, *, before: int | None = None) -> GrantsView:
    """Return the grants that wait, and a page of all."""
    drafts = reading.grants.page(state=GrantState.DRAFT, limit=PAGE) if before is None else []
    found = reading.grants.page(before=before, limit=LOOK_MAX + 1)
    own = [grant for grant in found[:LOOK_MAX] if "grant_id" not in recorded_via(grant)]
    last = own[PAGE - 1] if len(own) > PAGE else found[:LOOK_MAX][-1] if found else None
    looked = [grant for grant in found if last is not None and grant.grant_id >= last.grant_id]
    return GrantsView(
        now=now,
        drafts=tuple(_row(grant, now, granted(reading, grant)) for grant in drafts),
        rows=tuple(_row(grant, now, granted(reading, grant)) for grant in own[:PAGE]),
        older=last.grant_id if last is not None and len(looked) < len(found) else None,
        folded=len(looked) - len(own[:PAGE]),
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
    about, scope = granted(reading, grant), scope_of(grant)
    row, via = _row(grant, now, about), recorded_via(grant)
    jobs = reading.jobs.get_many(about.job_ids[:MANY_MAX])
    history = reading.journal.of(grant_id, GRANT.name)
    return GrantView(
        now=now,
        row=row,
        scope=tuple(_scope(grant)),
        history=tuple(reversed(history)),
        approval=who,
        environment=environment,
        approved_how=via.get("method"),
        under=via.get("grant_id"),
        about=about,
        executor=scope.executor if scope else "",
        rollback_plan=scope.rollback_plan if scope else "",
        requested_why=(history[0].reason if history else None) or grant.reason,
        step=use_of(grant, about) if row.state is GrantState.ACTIVE else None,
        operations=dict(Counter(job.operation for job in jobs).most_common()),
        examples=tuple(msgspec.structs.replace(job, payload=None, result=None) for job in jobs[:EXAMPLES]),
    )


def use_of(grant: Grant, about: Granted) -> NextStep | None:
    """Return the page that uses an approved grant; None if the console has none."""
    target, page = grant.target, None
    match grant.action:
        case Act.RELEASE:
            page = "Release the job…", path("/jobs", target.removeprefix(JOB_TARGET), "release")
        case Act.RELEASE_MANY if 0 < len(about.job_ids) <= MANY_MAX:
            page = "Release the jobs…", path("/jobs/act", act="release", grant=grant.grant_id)
        case Act.REPLAY if about.selection is not None:
            page = "Run the replay…", draft_again(about.selection).address("look")
        case Act.LIFT if target.startswith(PAUSE_TARGET):
            page = "Resume the queue…", path("/queues", target.removeprefix(PAUSE_TARGET), "resume")
        case Act.LIFT:
            page = "Lift the switch…", path("/switches", target.removeprefix(TARGET), "lift")
    return None if page is None else NextStep(*page, governed=True)


def _scope(grant: Grant) -> list[tuple[str, str]]:
    """Return what a grant permits, as pairs of words."""
    scope = msgspec.json.decode(grant.scope)
    if not isinstance(scope, dict):
        return []
    return [
        (str(name).replace("_", " "), value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in scope.items()
        if value not in (None, "", [], {}, [grant.action])
    ]
