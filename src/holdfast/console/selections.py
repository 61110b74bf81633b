"""A selection of jobs to replay, as the API and the forms give it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.errors import SpecInvalidError
from holdfast.core.machines import JobState
from holdfast.core.selection import (
    Limits,
    Options,
    ReplayMode,
    Selection,
    SelectionFilters,
    Window,
    selection_fault,
)

NAME = "console"


class ReplaySelection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which failed jobs to replay: what they must match, and how many at most. An empty list matches every job."""

    queues: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    error_codes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    limit: int | None = None
    mode: ReplayMode = ReplayMode.FAILED_ONLY

    def selection(self, environment: str) -> Selection:
        """Return the selection for a ledger's environment; raise SpecInvalidError if it has a fault."""
        replaces = self.mode is ReplayMode.REPAIR_AND_REPLACE
        states = (JobState.SUCCEEDED, JobState.QUARANTINED) if replaces else (JobState.FAILED,)
        made = Selection(
            name=NAME,
            env=environment,
            mode=self.mode,
            filters=SelectionFilters(
                queues=self.queues,
                operations=self.operations,
                error_codes=self.error_codes,
                jobs=self.jobs,
                status=states,
                created_at=Window(self.since, self.until) if self.since or self.until else None,
            ),
            limits=Limits(max_records=self.limit),
            options=Options(allow_repair_and_replace=replaces),
        )
        fault = selection_fault(made)
        if fault is not None:
            raise SpecInvalidError(
                f"{fault.path}: {fault.message}", next_step=fault.next_step, context={"path": fault.path}
            )
        return made
