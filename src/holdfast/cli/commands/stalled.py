"""`holdfast stalled` and `recover`: attempts whose lease has expired, and what ends them."""

from typing import TYPE_CHECKING, Any

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.options import actor
from holdfast.cli.output import Column
from holdfast.cli.values import row_value
from holdfast.store import Store

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.engine.ledger import Ledger


@command(Location.open)
def stalled(store: Store[Any]) -> Answer:
    """List the attempts whose lease has run out.

    Their workers died or hang. A worker recovers them by itself.
    """
    with store.reading() as reading:
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

    return Answer(rows, human)


@command(Location.ledger)
def recover(ledger: "Ledger") -> Answer:
    """End what expired leases left behind.

    What committed is finished; the rest is put back, within its budget.
    """
    from holdfast.engine.worker.reaper import recover as recover_now  # noqa: PLC0415 - see above

    report = recover_now(ledger, actor=actor())
    words = (
        f"{report.recovered} attempts ended: {report.finished} finished, {report.reopened} put back, "
        f"{report.failed} failed, {report.quarantined} quarantined"
    )
    return Answer(row_value(report), words)
