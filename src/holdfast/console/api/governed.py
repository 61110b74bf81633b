"""The API of replays and grants. A grant is approved by a person in the console, never through the API.

Invariants: as in `governed_acts.py`; a dry run writes nothing.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Controller
from litestar.params import JSONBody, QueryParameter

from holdfast.console import governed_acts
from holdfast.console.api.governed_types import (
    DryRunAnswer,
    GrantAnswer,
    GrantBody,
    GrantDetails,
    GrantsAnswer,
    GuardAnswer,
    ReplayRunBody,
    RunAnswer,
)
from holdfast.console.api.routes import Cursor, IdPath, Limit, NamePath, WordQuery, acts, before, next_cursor, reads
from holdfast.console.api.types import JournalAnswer, ReasonBody, answer_of
from holdfast.console.governed_acts import GrantRequest
from holdfast.console.injected import Here
from holdfast.console.security.callers import Permission
from holdfast.console.selections import ReplaySelectionBody
from holdfast.console.views.links import name_of
from holdfast.core.authority import act_named
from holdfast.core.machines import GRANT, GrantState
from holdfast.governance.approval import existing_grant, text_to_approve
from holdfast.governance.replay import replay
from holdfast.governance.replay.replay import DryRun


class Replays(Controller):
    """Replays."""

    path = "/replays"
    tags = ["replays"]  # noqa: RUF012 - Litestar's own convention

    @acts("/dry-run", Permission.VIEW, summary="Show what a replay would do")
    def dry_run(self, here: Here, data: JSONBody[ReplaySelectionBody]) -> DryRunAnswer:
        """Return what a replay would do and the verdict of every guard; nothing is written."""
        return _dry_run_answer(governed_acts.dry_run(here, data.selection(here.console.environment)))

    @acts("/", status_code=202, summary="Run a replay")
    def run(self, here: Here, data: JSONBody[ReplayRunBody]) -> RunAnswer:
        """Begin the replay that a dry run showed; it continues after this answer."""
        run_id = governed_acts.run_replay(
            here,
            data.selection.selection(here.console.environment),
            reason=data.reason,
            replay_reason=data.replay_reason,
            candidates_hash=data.candidates_hash,
            total=data.total,
            grant_id=data.grant_id,
        )
        return answer_of(replay.inspect(here.store, run_id, limit=1), RunAnswer)

    @reads("/{run_id:str}", summary="Show a replay")
    def show(self, here: Here, run_id: NamePath) -> RunAnswer:
        """Show the state of a replay, and what it did."""
        here.caller.require_unlimited()
        return answer_of(replay.inspect(here.store, name_of(run_id), limit=1), RunAnswer)

    @acts("/{run_id:str}/stop", summary="Stop a replay")
    def stop(self, here: Here, run_id: NamePath, data: JSONBody[ReasonBody]) -> RunAnswer:
        """Stop a replay before its next batch."""
        return answer_of(governed_acts.stop_replay(here, name_of(run_id), reason=data.reason), RunAnswer)


class Grants(Controller):
    """Grants."""

    path = "/grants"
    tags = ["grants"]  # noqa: RUF012 - see above

    @reads("/", summary="List grants")
    def list_grants(
        self,
        here: Here,
        *,
        in_state: Annotated[GrantState | None, QueryParameter(name="state")] = None,
        target: WordQuery = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> GrantsAnswer:
        """List grants, newest first."""
        here.caller.require_unlimited()
        with here.store.reading() as reading:
            found = reading.grants.page(state=in_state, target=target, before=before(cursor), limit=limit)
        now = here.store.now()
        return GrantsAnswer(
            grants=[GrantAnswer.of(one, now) for one in found],
            next_cursor=next_cursor([one.grant_id for one in found], limit),
        )

    @acts("/", status_code=201, summary="Request a grant")
    def request_grant(self, here: Here, data: JSONBody[GrantBody]) -> GrantAnswer:
        """Request a grant. Another person approves it in the console, or with the command."""
        wanted = GrantRequest(**{**msgspec.structs.asdict(data), "action": act_named(data.action)})
        return GrantAnswer.of(governed_acts.request_grant(here, wanted), here.store.now())

    @reads("/{grant_id:int}", summary="Show a grant")
    def show(self, here: Here, grant_id: IdPath) -> GrantDetails:
        """Show a grant, the exact words that an approval signs, and its history."""
        here.caller.require_unlimited()
        with here.store.reading() as reading:
            grant, journal = existing_grant(reading, grant_id), reading.journal.of(grant_id, GRANT.name)
            text = text_to_approve(reading, grant).decode()
        rows = answer_of(journal, list[JournalAnswer])
        return GrantDetails(grant=GrantAnswer.of(grant, here.store.now()), approval_text=text, journal=rows)

    @acts("/{grant_id:int}/revoke", Permission.REVOKE, summary="Revoke a grant")
    def revoke(self, here: Here, grant_id: IdPath, data: JSONBody[ReasonBody]) -> GrantAnswer:
        """Revoke a grant that is not consumed."""
        made = governed_acts.revoke_grant(here, grant_id, reason=data.reason)
        return GrantAnswer.of(made, here.store.now())


def _dry_run_answer(made: DryRun) -> DryRunAnswer:
    return DryRunAnswer(
        candidates_hash=made.candidates_hash,
        total=made.total,
        batches=made.batches,
        seconds_at_least=made.seconds_at_least,
        skipped=made.skipped,
        by_queue=made.by_queue,
        by_error=made.by_error,
        guards=[
            GuardAnswer(guard=one.guard_type, passed=one.passed, message=one.message, next_step=one.next_step)
            for one in made.guards
        ],
        grant_needed=made.grant_needed,
        grant_target=made.grant_target,
        grant_plan=made.selection_hash,
        authority=made.authority,
    )
