"""`holdfast submit`: record a unit of work.

Invariants: the payload is read and judged before the ledger is opened; no more of it is read than the limit allows.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from holdfast.cli.command import Answer, Location, command
from holdfast.cli.options import Operation, actor, payload_bytes_max, word
from holdfast.cli.values import result_value
from holdfast.core.digest import loads, payload_text
from holdfast.core.errors import InputError, PayloadTooLargeError
from holdfast.core.machines import JOB
from holdfast.core.protocol import ranked
from holdfast.store import Declared, Submission
from holdfast.store.requests import INTEGER_MAX


@command(Location.unopened)
def submit(
    location: Location,
    *,
    operation: Operation,
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="JSON; - reads it from standard input, @FILE from a file.")
    ] = "{}",
    client: Annotated[str, word("--client", "Who submits: keys are unique within a client.")] = "local",
    key: Annotated[str | None, word("--key", "The idempotency key: the same work is recorded once.")] = None,
    queue: Annotated[str | None, word("--queue", "The queue; the operation's own if not given.")] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=-INTEGER_MAX, max=INTEGER_MAX, help="Higher runs first.")
    ] = None,
    run_at: Annotated[
        str | None, typer.Option("--run-at", metavar="TIME", help="Not before: 2030-01-31T12:00:00Z.")
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option("--max-attempts", min=1, max=INTEGER_MAX, help="Attempts before automatic retry stops."),
    ] = None,
    operation_version: Annotated[
        str | None,
        word("--operation-version", "Its version; if not the one in force, or the newest declared.", metavar="VERSION"),
    ] = None,
) -> Answer:
    """Record a unit of work.

    A repeat of the same work under the same --client and --key records nothing and gives the first answer again.
    """
    size_max = payload_bytes_max()
    text = payload_text(loads(_read(payload, size_max), size_max=size_max), size_max=size_max)
    moment = due_moment(run_at)
    _require_version(operation_version)
    with location.open() as store, store.transaction() as transaction:
        declared = transaction.operations.declared().get(operation, Declared())
        in_force = transaction.registry.operation_in_force(operation) if transaction.governed else None
        submission = Submission(
            operation=operation,
            operation_version=operation_version or in_force or declared.version,
            payload=text,
            client=client,
            key=key,
            queue=queue or declared.queue,
            priority=declared.priority if priority is None else priority,
            run_at=moment,
            max_attempts=max_attempts or declared.max_attempts,
            replay_attempts=declared.replay_attempts,
        )
        [admission] = transaction.jobs.submit([submission], actor=actor())
    job = admission.existing
    receipt = {
        "job_id": admission.job_id,
        "is_new": admission.is_new,
        "state": job.state if job else JOB.path("submit", None).target,
        "result": result_value(job) if job else None,
    }
    what = "new" if admission.is_new else "submitted before"
    if job is not None and job.slimmed:
        receipt["result_expired"], what = True, f"{what}, its result has expired"
    return Answer(receipt, f"job {receipt['job_id']}  {receipt['state']}  ({what})")


def _read(payload: str, size_max: int) -> str | bytes:
    if payload == "-":
        return _bounded(sys.stdin.buffer, size_max)
    if not payload.startswith("@"):
        return payload
    path = Path(payload[1:])
    try:
        with path.open("rb") as file:
            return _bounded(file, size_max)
    except OSError as error:
        raise InputError(
            f"the payload cannot be read from {path}: {error.strerror}",
            next_step="Name a readable file after @, or give the JSON itself.",
            context={"path": str(path)},
        ) from None


def _bounded(file: BinaryIO, size_max: int) -> bytes:
    text = file.read(size_max + 1)
    if len(text) > size_max:
        raise PayloadTooLargeError(f"the payload has more than {size_max} bytes", context={"limit": size_max})
    return text


def _require_version(text: str | None) -> None:
    if text is not None and ranked(text) is None:
        raise InputError(
            f"--operation-version is not a version: {text}",
            next_step="Write it as SemVer, without build metadata: 1.0.0.",
            context={"operation_version": text},
        )


def due_moment(text: str | None) -> datetime | None:
    """Return the time that was given for --run-at, or raise InputError."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InputError(
            f"--run-at is not a time with a zone: {text}",
            next_step="Write it as 2030-01-31T12:00:00Z or 2030-01-31T13:00:00+01:00.",
            context={"run_at": text},
        ) from None
