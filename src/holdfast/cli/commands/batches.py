"""`holdfast batches`: list batches, and show how far one is.

Invariants: reading a batch changes nothing.
"""

from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.declare import argument, option
from holdfast.cli.text import Column
from holdfast.core.machines import JobState
from holdfast.core.records import time_text
from holdfast.store import Store

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading
    from holdfast.store.verbs.flow import Wait

batches = group("See how far batches of jobs are.", "guide")

HOLDING_MAX = 20


@batches.subcommand("list")
@command(Location.open)
def list_(
    store: Store[Any],
    *,
    limit: Annotated[int, option("--limit", min=1, max=1000, help="Maximum number of batches.")] = 20,
) -> Answer:
    """List the last batches with their progress, newest first."""
    with store.reading() as reading:
        values = [_value(reading, batch) for batch in reading.flow.batches(limit)]
    return Answer(values, lambda: _print(values))


@batches.subcommand()
@command(Location.open)
def show(store: Store[Any], *, batch_id: Annotated[int, argument(metavar="BATCH", help="Id of the batch.")]) -> Answer:
    """Show the progress of a batch, the job that follows it, and the jobs that have not succeeded."""
    with store.reading() as reading:
        batch = reading.flow.batch(batch_id)
        value = _value(reading, batch)
        holding = reading.flow.holding(batch_id, HOLDING_MAX)
    value["not_succeeded"] = [
        {"job_id": job_id, "state": state.value, "quarantine_code": code} for job_id, state, code in holding
    ]

    def human() -> None:
        _print([value])
        if holding:
            columns = [Column("JOB", right=True), Column("STATE"), Column("CODE")]
            output.table(columns, [(job_id, state.value, code or "") for job_id, state, code in holding])
        if value["then"] is not None:
            output.line(f"next: holdfast explain {value['then']}")

    return Answer(value, human)


def _value(reading: "Reading", batch: "Wait") -> dict[str, Any]:
    states = reading.flow.states_of(batch.wait_id)
    return {
        "batch_id": batch.wait_id,
        "name": batch.name,
        "total": batch.parents,
        **{state.value: states[state] for state in JobState},
        "ended": not states[JobState.PENDING] and not states[JobState.RUNNING],
        "then": batch.job_id,
        "if_unsuccessful": batch.policy,
        "waiting": batch.awaited is not None,
        "created_at": time_text(batch.created_at),
    }


def _print(values: list[dict[str, Any]]) -> None:
    states = [state.value for state in JobState]
    output.table(
        [
            Column("BATCH", right=True), Column("NAME"), Column("TOTAL", right=True),
            *(Column(state.upper(), right=True) for state in states), Column("THEN", right=True), Column("CREATED"),
        ],
        [
            (
                one["batch_id"], one["name"] or "", one["total"], *(one[state] for state in states), one["then"] or "",
                one["created_at"],
            )
            for one in values
        ],
        none="No batches.",
    )  # fmt: skip
