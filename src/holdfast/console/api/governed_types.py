"""The types of the API of replays and grants.

Invariants: as in `types.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.console.acts import Id, Word
from holdfast.console.api.types import JournalAnswer, Text, answer_of
from holdfast.console.selections import ReplaySelectionBody
from holdfast.core.governed import Grant
from holdfast.governance.granted import grant_value
from holdfast.store.requests import INTEGER_MAX


class ReplayRunBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replay to run: its selection, and what its dry run showed. Another set of jobs is refused (plan_stale)."""

    selection: ReplaySelectionBody
    candidates_hash: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    total: Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
    reason: Text
    replay_reason: Word = "incident"
    grant_id: Id | None = None


class GrantBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A grant to request: one act, on one target, by one executor (default: the caller)."""

    action: Word
    target: Word
    reason: Text
    rollback_plan: Text
    executor: Word | None = None
    plan: Word | None = None
    manifest: Word | None = None
    ttl_s: Annotated[int, Meta(ge=1, le=30 * 86400)] | None = None


class GrantAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A grant: what it permits, and who requested and approved it."""

    grant_id: int
    state: str
    version: int
    action: str
    target: str
    executor: str | None
    plan: str | None
    manifest: str | None
    rollback_plan: str | None
    requested_by: str
    approved_by: str | None
    approved_via: str | None
    consumed_by: str | None
    reason: str
    expires_at: datetime
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, grant: Grant, now: datetime) -> GrantAnswer:
        """Return a grant as the API shows it; one past its time is expired."""
        return answer_of(grant_value(grant, now), cls)


class GrantsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of grants, newest first."""

    grants: list[GrantAnswer]
    next_cursor: str | None


class GrantDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A grant, the exact words that an approval signs, and its history."""

    grant: GrantAnswer
    approval_text: str
    journal: list[JournalAnswer]


class GuardAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one guard."""

    guard: str
    passed: bool
    message: str
    next_step: str | None


class DryRunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay would do, and whether it may."""

    candidates_hash: str
    total: int
    batches: int
    seconds_at_least: float
    skipped: dict[str, int]
    by_queue: dict[str, int]
    by_error: dict[str, int]
    guards: list[GuardAnswer]
    grant_needed: bool
    grant_target: str
    grant_plan: str
    authority: str


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a replay, and what it did."""

    run_id: str
    state: str
    stop_reason: str | None
    failure: str | None
    replayed: int
    skipped: dict[str, int]
    batches: int
    batches_planned: int
    total: int
    candidates_hash: str
    grant_id: int | None
    actor: str
    reason: str
    began_at: datetime
    updated_at: datetime
