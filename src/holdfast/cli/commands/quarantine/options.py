"""The options that the commands of `holdfast quarantine` share, and the JSON of a job in quarantine."""

from typing import TYPE_CHECKING, Annotated

from holdfast.cli.declare import argument, option
from holdfast.cli.options import ID_MAX, word
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.explain.times import age
from holdfast.explain.values import job_value
from holdfast.governance.reasons import Reason, declare, reason_for
from holdfast.nodd.reasons import REASONS

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.quarantine import QuarantineFilters

declare(REASONS)  # so that the codes of nodd map to the same reasons here as in nodd

SHOWN = ("quarantine_code", "replay_attempts", "excused", "replaces")  # fields of a job in addition to JOB_FIELDS

JobId = Annotated[int, argument(metavar="JOB", min=1, max=ID_MAX, help="Id of the job.")]
Code = Annotated[str | None, word("--code", "Only jobs with this quarantine code.")]
Operation = Annotated[str | None, word("--operation", "Only jobs of this operation.")]
Queue = Annotated[str | None, word("--queue", "Only jobs of this queue.")]
OlderThan = Annotated[
    str | None,
    option("--older-than", metavar="AGE", help="Only jobs quarantined for longer than this: 30d, 12h."),
]
Cancelled = Annotated[bool, option("--cancelled", help="Include cancelled jobs.")]


def filters(
    code: str | None,
    reason: Reason | None,
    operation: str | None,
    queue: str | None,
    older_than: str | None,
    *,
    cancelled: bool,
) -> "QuarantineFilters":
    from holdfast.governance.quarantine import QuarantineFilters  # noqa: PLC0415 - see above

    oldest = None if older_than is None else age(older_than, "--older-than")
    return QuarantineFilters(
        code=code, reason=reason, operation=operation, queue=queue, older_than=oldest, cancelled=cancelled
    )


def quarantined_value(job: Job) -> dict[str, object]:
    """Return a job as a JSON object, with its quarantine reason."""
    why = reason_for(job).value if job.state is JobState.QUARANTINED else None
    return {**job_value(job), **{name: getattr(job, name) for name in SHOWN}, "reason": why}
