"""The options that the commands of `holdfast quarantine` share, and the JSON of a job in quarantine."""

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import ID_MAX, word
from holdfast.cli.times import UNITS
from holdfast.cli.values import job_value
from holdfast.core.errors import InputError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.governance.reasons import Reason, declare, reason_for
from holdfast.nodd.reasons import REASONS

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.quarantine import QuarantineFilters

declare(REASONS)  # so that a ledger of nodd is answered for as nodd itself does

AGE_S_MAX = 100 * 366 * 86400
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([a-z]*)")
SHOWN = ("quarantine_code", "replay_attempts", "excused", "replaces")  # of a job, beside what every command shows

JobId = Annotated[int, typer.Argument(metavar="JOB", min=1, max=ID_MAX, help="The job.")]
Code = Annotated[str | None, word("--code", "Only what has this code.")]
Operation = Annotated[str | None, word("--operation", "Only jobs of this operation.")]
Queue = Annotated[str | None, word("--queue", "Only jobs of this queue.")]
OlderThan = Annotated[
    str | None, typer.Option("--older-than", metavar="AGE", help="Only what has been there for longer: 30d, 12h.")
]
Cancelled = Annotated[bool, typer.Option("--cancelled", help="Also what was cancelled.")]


def filters(
    code: str | None,
    reason: Reason | None,
    operation: str | None,
    queue: str | None,
    older_than: str | None,
    *,
    cancelled: bool,
) -> "QuarantineFilters":
    """Return the filters that the options make."""
    from holdfast.governance.quarantine import QuarantineFilters  # noqa: PLC0415 - see above

    age = None if older_than is None else age_of(older_than)
    return QuarantineFilters(
        code=code, reason=reason, operation=operation, queue=queue, older_than=age, cancelled=cancelled
    )


def age_of(text: str) -> timedelta:
    """Return the age that was given for --older-than, or raise InputError."""
    match = _AGE.fullmatch(text.strip().lower())
    unit = UNITS.get(match[2] or "s") if match else None
    if match is None or unit is None or float(match[1]) * unit > AGE_S_MAX:
        raise InputError(
            f"--older-than is not an age: {text}",
            next_step="Write it as 30d, 12h, 90min or 3600s, and no more than a hundred years.",
            context={"older_than": text},
        )
    return timedelta(seconds=float(match[1]) * unit)


def quarantined_value(job: Job) -> dict[str, object]:
    """Return a job as its JSON object, with why it is in quarantine."""
    why = reason_for(job).value if job.state is JobState.QUARANTINED else None
    return {**job_value(job), **{name: getattr(job, name) for name in SHOWN}, "reason": why}
