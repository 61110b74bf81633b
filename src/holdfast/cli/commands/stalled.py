"""`holdfast stalled` and `recover`: list and recover jobs whose lease has expired."""

from typing import TYPE_CHECKING, Any

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.options import actor
from holdfast.cli.text import Column
from holdfast.core.spans import counted
from holdfast.explain.values import row_value
from holdfast.store import Store

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.engine.ledger import Ledger


@command(Location.open)
def stalled(store: Store[Any]) -> Answer:
    """List running jobs whose lease has expired.

    Their workers crashed or hang. Any running worker recovers these jobs automatically.
    """
    with store.reading() as reading:
        found = reading.lists.stalled()
        now = store.now()
    rows = [
        {"job_id": attempt.job.job_id, "operation": attempt.job.operation, **row_value(attempt.execution)}
        for attempt in found
    ]

    def human() -> None:
        if not found:
            output.line("No stalled jobs.")
            return
        output.table(
            [Column("JOB", right=True), Column("OPERATION"), Column("ATTEMPT", right=True), Column("STATUS"),
             Column("WORKER"), Column("LEASE EXPIRED")],
            [
                (a.job.job_id, a.job.operation, a.execution.attempt, output.state(a.execution.status),
                 a.execution.lease_owner, output.age(a.execution.lease_expires_at, now))
                for a in found
            ],
        )  # fmt: skip
        output.line("next: holdfast recover")

    return Answer(rows, human)


@command(Location.ledger)
def recover(ledger: "Ledger") -> Answer:
    """Recover jobs whose lease has expired.

    A committed execution is finished. Any other job becomes pending again if it has attempts left.
    """
    from holdfast.engine.worker.reaper import recover as recover_now  # noqa: PLC0415 - see above

    report = recover_now(ledger, actor=actor())
    text = (
        f"Recovered {counted(report.recovered, 'attempt')}: {report.finished} finished, "
        f"{report.reopened} pending again, {report.failed} failed, {report.quarantined} quarantined."
    )
    return Answer(row_value(report), text)
