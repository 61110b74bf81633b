"""The API of acts on several jobs: a dry run that names them, and the act on exactly those. Releases are acts, too.

Invariants: as in `console/many.py`; a token that is limited to some queues or operations cannot use these.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Controller
from litestar.params import JSONBody
from msgspec import Meta

from holdfast.console import governed_acts, many
from holdfast.console.acts import Id, Word, zoned
from holdfast.console.api.governed_types import GrantAnswer
from holdfast.console.api.routes import acts
from holdfast.console.api.types import Text, answer_of
from holdfast.console.injected import Here
from holdfast.console.many import ChosenJob, ManyAct, ManyDone
from holdfast.console.security.callers import Permission
from holdfast.console.selections import JobSelection
from holdfast.core.machines import JobState
from holdfast.governance.releases import MANY_MAX, RUN_MAX
from holdfast.store.verbs.watch import JobFilters


class ManyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act, and on which jobs: on `jobs`, or on those that match the other fields."""

    act: ManyAct
    jobs: Annotated[tuple[Id, ...], Meta(max_length=MANY_MAX)] = ()
    state: JobState | None = None
    queue: Word | None = None
    operation: Word | None = None
    client: Word | None = None
    code: Word | None = None
    since: datetime | None = None
    until: datetime | None = None


class ManyActBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act on the jobs of a dry run. A release consumes a grant outside dev."""

    act: ManyAct
    jobs: Annotated[tuple[ChosenJob, ...], Meta(min_length=1, max_length=MANY_MAX)]
    reason: Text
    grant_id: Id | None = None


class ReleaseGrantBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request of the grant to release exactly these jobs."""

    jobs: Annotated[tuple[Id, ...], Meta(min_length=1, max_length=RUN_MAX)]
    reason: Text
    rollback_plan: Text
    executor: Word | None = None


class ManyPlanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an act would do. `more`: more jobs match than one act takes."""

    act: ManyAct
    total: int
    jobs: list[ChosenJob]
    by_state: dict[str, int]
    by_operation: dict[str, int]
    skipped: dict[str, int]
    more: bool
    grant_target: str | None
    authority: str | None


class ManyActs(Controller):
    """Acts on several jobs."""

    path = "/jobs/acts"
    tags = ["jobs"]  # noqa: RUF012 - Litestar's own convention

    @acts("/dry-run", Permission.VIEW, summary="Show what an act on several jobs would do")
    def dry_run(self, here: Here, data: JSONBody[ManyBody]) -> ManyPlanAnswer:
        """Return the jobs that an act would change, each with its version, and why others are passed over."""
        filters = JobFilters(
            state=data.state, queue=data.queue, operation=data.operation, client=data.client, code=data.code
        )
        since, until = zoned(data.since, "since"), zoned(data.until, "until")
        selection = JobSelection(filters=filters, since=since, until=until, jobs=data.jobs)
        made = many.plan(here, data.act, selection)
        return answer_of(made, ManyPlanAnswer)

    @acts("/", summary="Act on several jobs")
    def act(self, here: Here, data: JSONBody[ManyActBody]) -> ManyDone:
        """Retry, cancel or release the jobs of a dry run. A job that has moved is passed over; a release is refused."""
        return many.perform(here, data.act, data.jobs, reason=data.reason, grant_id=data.grant_id)

    @acts("/release/request", status_code=201, summary="Request the grant to release several jobs")
    def request_release(self, here: Here, data: JSONBody[ReleaseGrantBody]) -> GrantAnswer:
        """Request the grant to release exactly these quarantined jobs. Another person approves it in the console."""
        made = governed_acts.request_release(
            here, data.jobs, reason=data.reason, rollback_plan=data.rollback_plan, executor=data.executor
        )
        return GrantAnswer.of(made.grant, here.store.now())
