"""`holdfast submit`: submits a job.

Invariants: the payload is read and checked before the ledger is opened; at most one byte more than the limit is read.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument, option
from holdfast.cli.documents import read_file
from holdfast.cli.options import Operation, actor, word
from holdfast.core.digest import payload_text
from holdfast.core.errors import InputError, PayloadTooLargeError
from holdfast.core.json_input import loads
from holdfast.core.protocol import ranked
from holdfast.explain.times import due_moment
from holdfast.explain.values import admission_value
from holdfast.store import Declared, Submission
from holdfast.store.configuration import configuration
from holdfast.store.requests import INTEGER_MAX

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.store.verbs.flow import Flow


@command(Location.unopened)
def submit(
    location: Location,
    *,
    operation: Operation,
    payload: Annotated[
        str, argument(metavar="PAYLOAD", help="Payload as JSON; - reads standard input, @FILE reads a file.")
    ] = "{}",
    client: Annotated[str, word("--client", "Name of the client; keys are unique per client.")] = "local",
    key: Annotated[str | None, word("--key", "Idempotency key; a second submit with the same key adds no job.")] = None,
    queue: Annotated[str | None, word("--queue", "Queue (default: the queue of the operation).")] = None,
    priority: Annotated[
        int | None,
        option("--priority", min=-INTEGER_MAX, max=INTEGER_MAX, help="Priority; jobs with a higher number run first."),
    ] = None,
    run_at: Annotated[
        str | None,
        option("--run-at", metavar="TIME", help="Earliest start, with a zone: 2030-01-31T12:00:00Z (default: now)."),
    ] = None,
    max_attempts: Annotated[
        int | None,
        option("--max-attempts", min=1, max=INTEGER_MAX, help="Maximum number of automatic attempts."),
    ] = None,
    operation_version: Annotated[
        str | None,
        word("--operation-version", "Version of the operation (default: the active or newest one).", metavar="VERSION"),
    ] = None,
    unique: Annotated[
        str | None,
        word("--unique", "One job of the same work: 'active', or seconds such as 3600.", metavar="SCOPE"),
    ] = None,
    deadline: Annotated[
        str | None,
        option("--deadline", metavar="TIME", help="Latest start, with a zone; after it the job does not run."),
    ] = None,
    after: Annotated[
        list[int] | None,
        option("--after", metavar="JOB", help="Start when this job has succeeded; may be given several times."),
    ] = None,
    if_unsuccessful: Annotated[
        str | None,
        word("--if-unsuccessful", "If a job of --after does not succeed: wait, cancel or run.", metavar="POLICY"),
    ] = None,
) -> Answer:
    """Submit a job.

    A second submit of the same call with the same --client and --key adds no job and returns the first one.
    """
    size_max = configuration().payload_max_bytes
    text = payload_text(loads(_read(payload, size_max), size_max=size_max), size_max=size_max)
    moment, latest = due_moment(run_at), due_moment(deadline, "--deadline")
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
            flow=_flow(
                declared,
                operation=operation,
                payload=loads(text),
                unique=_scope(unique),
                deadline_at=latest,
                after=after or None,
                if_unsuccessful=if_unsuccessful,
            ),
        )
        [admission] = transaction.jobs.submit([submission], actor=actor())
    job = admission.existing
    receipt = admission_value(admission)
    what = "new" if admission.is_new else "already submitted"
    if job is not None and job.slimmed:
        receipt["result_expired"], what = True, f"{what}, its result was deleted by retention"
    return Answer(receipt, f"job {receipt['job_id']}  {receipt['state']}  ({what})")


def _flow(declared: Declared, **settings: Any) -> "Flow | None":
    """Return the uniqueness, deadline and predecessors of the job: from the options, else from the operation."""
    if not (declared.flow or any(settings[name] for name in ("unique", "deadline_at", "after", "if_unsuccessful"))):
        return None
    from holdfast.engine.operations import Call  # noqa: PLC0415 - see above
    from holdfast.scheduling.unique import flow_of  # noqa: PLC0415 - see above

    return flow_of(Call(**settings), declared)


def _scope(unique: str | None) -> str | dict[str, float] | None:
    """Return the scope of an option: seconds are a window."""
    return {"window_s": float(unique)} if unique and unique.replace(".", "", 1).isdigit() else unique


def _read(payload: str, size_max: int) -> str | bytes:
    if payload == "-":
        return _bounded(sys.stdin.buffer.read(size_max + 1), size_max)
    if not payload.startswith("@"):
        return payload
    return _bounded(read_file(Path(payload[1:]), size_max), size_max)


def _bounded(text: bytes, size_max: int) -> bytes:
    if len(text) > size_max:
        raise PayloadTooLargeError(f"The payload is larger than {size_max} bytes.", context={"limit": size_max})
    return text


def _require_version(text: str | None) -> None:
    if text is not None and ranked(text) is None:
        raise InputError(
            f"--operation-version must be a SemVer version; it is {text!r}.",
            next_step="Write it without build metadata, such as 1.0.0.",
            context={"operation_version": text},
        )
