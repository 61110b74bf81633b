"""The forms that pages post: their fields as text, and what the acts need of them.

Invariants: a field that is left empty counts as missing; a number out of its range is refused.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.console.governed_acts import GrantRequest
from holdfast.console.many import ChosenJob, ManyAct
from holdfast.console.views.jobs import number_in
from holdfast.console.views.replays import Draft, draft_of
from holdfast.core.authority import Act, act_named
from holdfast.core.errors import InputError
from holdfast.core.selection import Selection
from holdfast.store.verbs.watch import ID_MAX

TTL_MINUTES_MAX = 30 * 24 * 60


class ActForm(msgspec.Struct, frozen=True):
    """The fields of every form; a number is a text, because a form sends an empty text for none."""

    reason: str = ""
    version: str = ""
    grant_id: str = ""
    code: str = ""


class ApproveForm(msgspec.Struct, frozen=True):
    """The approval of a grant."""

    reason: str = ""
    password: str = ""


class SelectingForm(msgspec.Struct, frozen=True):
    """What a replay selects, as its address has it."""

    queue: str = ""
    operation: str = ""
    code: str = ""
    jobs: str = ""
    since: str = ""
    until: str = ""
    limit: str = ""

    def draft(self, now: datetime) -> Draft:
        """Return the selection, parsed like the address of its dry run; raise InputError for a wrong value."""
        return draft_of(msgspec.structs.asdict(self), now)


class GrantForm(SelectingForm, frozen=True):
    """The request of a grant, with the selection of a replay."""

    action: str = ""
    target: str = ""
    reason: str = ""
    rollback_plan: str = ""
    executor: str = ""
    plan: str = ""
    manifest: str = ""
    ttl_minutes: str = ""

    def request(self) -> GrantRequest:
        """Return the grant to request; raise InputError for a value that is not valid."""
        minutes = number(self.ttl_minutes, "ttl_minutes", TTL_MINUTES_MAX)
        return GrantRequest(
            action=act_named(self.action),
            target=self.target,
            reason=self.reason,
            rollback_plan=self.rollback_plan,
            executor=self.executor or None,
            plan=self.plan or None,
            manifest=self.manifest or None,
            ttl_s=None if minutes is None else minutes * 60,
        )

    def selection(self, environment: str, now: datetime) -> Selection | None:
        """Return what the replay of the plan selects; None if the form does not say it."""
        if self.action != Act.REPLAY or not self.plan:
            return None
        found = self.draft(now).selection(environment)
        return found if found.hash == self.plan else None


class ReplayForm(SelectingForm, frozen=True):
    """The run of a replay: the selection, what the dry run showed, and the typed number."""

    candidates_hash: str = ""
    total: str = ""
    reason: str = ""
    replay_reason: str = "incident"
    grant_id: str = ""


class ReleaseForm(msgspec.Struct, frozen=True):
    """The release of several quarantined jobs; `job_ids` is sent once for each job, or with commas."""

    job_ids: list[str] | str = ""
    expected: str = ""
    reason: str = ""
    grant_id: str = ""
    rollback_plan: str = ""

    def ids(self) -> list[int]:
        """Return the ids of the jobs; raise InputError for a value that is not an id."""
        text = self.job_ids if isinstance(self.job_ids, str) else ",".join(self.job_ids)
        found = [number(word.strip(), "job_ids") for word in text.split(",") if word.strip()]
        return [one for one in found if one is not None]


class ManyForm(msgspec.Struct, frozen=True):
    """An act on several jobs: those of the dry run, as id:version with commas, and in prod the typed number."""

    act: str = ""
    jobs: str = ""
    expected: str = ""
    reason: str = ""
    grant_id: str = ""

    def chosen(self) -> list[ChosenJob]:
        """Return the jobs; raise InputError for a value that is not valid, or if `expected` is not their number."""
        pairs = [word.partition(":") for word in self.jobs.split(",") if word.strip()]
        found = [ChosenJob(number(a, "jobs") or 0, number(b, "jobs") or 0) for a, _, b in pairs]
        if number(self.expected, "expected") != len(found):
            raise InputError(
                f"The number {self.expected[:20]!r} was given, but the selection has {len(found)} jobs.",
                next_step="Type the number of jobs that the page shows.",
                context={"field": "expected", "found": len(found)},
            )
        return found


def number(text: str, field: str, most: int = ID_MAX) -> int | None:
    """Return the number of a field, None for an empty one; raise InputError if it is not a number, or out of range."""
    if not text.strip():
        return None
    return number_in(text.strip(), field, high=most)


def many_act_of(text: str) -> ManyAct:
    """Return the act on several jobs of a name; raise InputError if there is none."""
    if text not in list(ManyAct):
        raise InputError("Unknown act.", next_step=f"Choose one of: {', '.join(ManyAct)}.", context={"field": "act"})
    return ManyAct(text)
