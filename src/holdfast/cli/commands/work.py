"""`holdfast worker`, and the commands that act on work: cancel, retry, pause, resume, stalled, recover.

Invariants: a worker stops gracefully on the first SIGTERM or SIGINT and at once on the second; one that has abandoned
too many threads is replaced by a fresh process of itself; what a command did is what the ledger answered.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import ID_MAX, Db, Json, Schema, actor, ledger_url, opened, word
from holdfast.cli.output import Column
from holdfast.cli.values import row_value
from holdfast.core.errors import HoldfastError, InputError

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.engine.ledger import Ledger

STOPPED_AT_ONCE = 130
JobId = Annotated[int, typer.Argument(metavar="ID", min=1, max=ID_MAX, help="The job.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.")]


def worker(
    *,
    app: Annotated[str, typer.Argument(metavar="MODULE:LEDGER", help="Where the ledger and its operations are.")],
    queue: Annotated[
        list[str] | None, typer.Option("--queue", metavar="NAME", help="A queue; may be repeated.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=10_000, help="Handlers at once.")] = 8,
    processes: Annotated[bool, typer.Option("--processes", help="Run handlers in processes, not threads.")] = False,
    drain: Annotated[
        float, typer.Option("--drain", min=0, metavar="SECONDS", help="Time to finish when stopped.")
    ] = 30,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when nothing is due.")] = False,
    no_retention: Annotated[
        bool, typer.Option("--no-retention", help="Leave retention to others, who see the directory of archives.")
    ] = False,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Run the operations of a ledger until stopped."""
    from holdfast.engine.worker.keeper import Periods  # noqa: PLC0415 - see above
    from holdfast.engine.worker.worker import Worker  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    ledger = load(app, db, schema)
    made = Worker(
        ledger,
        queues=queue or ledger.queues(),
        concurrency=concurrency,
        executor="processes" if processes else "threads",
        drain_s=drain,
        periods=Periods(gc_s=None) if no_retention else None,
    )
    with _stopped_by_signals(made):
        attempts = made.run(until_idle=until_idle)
    if made.recycle and not until_idle:
        # Threads cannot be ended, a process can: this one is replaced by itself.
        os.execv(sys.executable, [sys.executable, "-m", "holdfast.cli", *sys.argv[1:]])  # noqa: S606 - our own command
    answer = {"worker_id": made.worker_id, "attempts": attempts}
    output.answer(answer, lambda: output.line(f"{made.worker_id} made {attempts} attempts"), as_json=as_json)


def load(app: str, db: str | None, schema: str | None) -> "Ledger":
    """Import `module:name` and return the Ledger, or a Ledger with the Operations, that it names."""
    from holdfast.engine.ledger import Ledger  # noqa: PLC0415 - see above
    from holdfast.engine.operations import Operations  # noqa: PLC0415
    from holdfast.engine.redact import error_message  # noqa: PLC0415

    module, _, name = app.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = getattr(import_module(module), name or "ledger")
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may raise anything when it is imported
        raise InputError(
            f"{app!r} cannot be loaded: {error_message(error)}",
            next_step="Give module:name of a Ledger that Python can import.",
        ) from None
    if isinstance(found, Operations):
        return Ledger(ledger_url(db, schema), found, schema=schema or "public")
    if not isinstance(found, Ledger):
        raise InputError(f"{app!r} is a {type(found).__name__}, not a Ledger", next_step="Name a Ledger or Operations.")
    return Ledger(ledger_url(db, schema), found.operations, schema=schema or "public") if db else found


@contextmanager
def _stopped_by_signals(made: Any) -> Iterator[None]:
    """Let SIGTERM and SIGINT stop a worker while it runs; a second one ends the process."""
    asked = 0

    def stop(*_: object) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            os._exit(STOPPED_AT_ONCE)
        made.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def cancel(
    *, job_id: JobId, reason: Reason = None, db: Db = None, schema: Schema = None, as_json: Json = False
) -> None:
    """Cancel a job; a running one is asked to stop."""
    with _ledger(db, schema) as ledger:
        state = ledger.cancel(job_id, actor=actor(), reason=reason)
    asked = state == "running"
    human = f"job {job_id} runs and was asked to stop" if asked else f"job {job_id} is {state}"
    output.answer(
        {"job_id": job_id, "state": state, "asked_to_stop": asked}, lambda: output.line(human), as_json=as_json
    )


def retry(*, job_id: JobId, reason: Reason = None, db: Db = None, schema: Schema = None, as_json: Json = False) -> None:
    """Put a failed job back, within its whole budget."""
    with _ledger(db, schema) as ledger:
        state = ledger.retry(job_id, actor=actor(), reason=reason)
    output.answer({"job_id": job_id, "state": state}, lambda: output.line(f"job {job_id} is {state}"), as_json=as_json)


def pause(
    *,
    queue: Annotated[str, word("--queue", "The queue.")] = "default",
    reason: Reason = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Stop giving out work of a queue; what is running goes on."""
    with opened(db, schema) as store, store.transaction() as transaction:
        transaction.queues.pause(queue, actor=actor(), reason=reason or "paused")
    output.answer({"queue": queue, "paused": True}, lambda: output.line(f"{queue} is paused"), as_json=as_json)


def resume(
    *,
    queue: Annotated[str, word("--queue", "The queue.")] = "default",
    reason: Reason = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Give out work of a queue again."""
    with opened(db, schema) as store, store.transaction() as transaction:
        transaction.queues.resume(queue, actor=actor(), reason=reason or "resumed")
    output.answer({"queue": queue, "paused": False}, lambda: output.line(f"{queue} gives out work"), as_json=as_json)


def stalled(*, db: Db = None, schema: Schema = None, as_json: Json = False) -> None:
    """List the attempts whose lease has run out.

    Their workers died or hang. A worker recovers them by itself.
    """
    with opened(db, schema) as store, store.reading() as reading:
        found = reading.executions.stalled()
        now = store.now()
    rows = [
        {"job_id": attempt.job.job_id, "operation": attempt.job.operation, **row_value(attempt.execution)}
        for attempt in found
    ]

    def human() -> None:
        if not found:
            output.line("no lease has run out")
            return
        output.table(
            [Column("JOB", right=True), Column("OPERATION"), Column("ATTEMPT", right=True), Column("STATUS"),
             Column("WORKER"), Column("LEASE ENDED")],
            [
                (a.job.job_id, a.job.operation, a.execution.attempt, output.state(a.execution.status),
                 a.execution.lease_owner, output.age(a.execution.lease_expires_at, now))
                for a in found
            ],
        )  # fmt: skip
        output.line("next: holdfast recover, or start a worker: it recovers them by itself")

    output.answer(rows, human, as_json=as_json)


def recover(*, db: Db = None, schema: Schema = None, as_json: Json = False) -> None:
    """End what expired leases left behind.

    What committed is finished; the rest is put back, within its budget.
    """
    from holdfast.engine.worker.reaper import recover as recover_now  # noqa: PLC0415 - see above

    with _ledger(db, schema) as ledger:
        report = recover_now(ledger, actor=actor())
    words = (
        f"{report.recovered} attempts ended: {report.finished} finished, {report.reopened} put back, "
        f"{report.failed} failed, {report.quarantined} quarantined"
    )
    output.answer(row_value(report), lambda: output.line(words), as_json=as_json)


def _ledger(db: str | None, schema: str | None) -> "Ledger":
    from holdfast.engine.ledger import Ledger  # noqa: PLC0415 - see above

    return Ledger(ledger_url(db, schema), schema=schema or "public", create=False)
