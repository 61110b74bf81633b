"""`holdfast queues` and `workers`: list the queues of a ledger, and the workers that serve them. They only read."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.output import Column
from holdfast.core.machines import JobState
from holdfast.explain.values import row_value
from holdfast.store import Store
from holdfast.store.verbs.alive import alive_workers
from holdfast.store.verbs.known_queues import known_queues
from holdfast.store.verbs.lists import WorkerRow

LISTED = (JobState.PENDING, JobState.RUNNING, JobState.FAILED, JobState.QUARANTINED)


@command(Location.open)
def queues(store: Store[Any]) -> Answer:
    """List the queues, and which are paused.

    With their jobs and their workers.
    """
    with store.reading() as reading:
        now = store.now()
        names, paused, alive = known_queues(reading), set(reading.queues.paused()), alive_workers(reading, now)
        counts = reading.counts.current()
    found: list[dict[str, Any]] = [
        {
            "queue": name,
            "paused": name in paused,
            "workers": sum(name in worker.queues for worker in alive),
            **{
                state.value: sum(count.n for count in counts if count.queue == name and count.state is state)
                for state in LISTED
            },
        }
        for name in names
    ]
    return Answer(found, lambda: _print_queues(found))


def _print_queues(found: Sequence[dict[str, Any]]) -> None:
    numbers = [Column(state.value.upper(), right=True) for state in LISTED]
    output.table(
        [Column("QUEUE"), Column("STATE"), Column("WORKERS", right=True), *numbers],
        [
            [
                row["queue"],
                "paused" if row["paused"] else "open",
                row["workers"],
                *(
                    output.styled(row[state.value], output.STYLES[state] if row[state.value] else "dim")
                    for state in LISTED
                ),
            ]
            for row in found
        ],
    )


@command(Location.open)
def workers(
    store: Store[Any],
    *,
    every: Annotated[bool, typer.Option("--all", help="List stopped and lost workers too.")] = False,
) -> Answer:
    """List the workers that run, with their queues and operations."""
    with store.reading() as reading:
        now = store.now()
        alive = alive_workers(reading, now)
        found = reading.lists.workers() if every else alive
    names = {worker.worker_id for worker in alive}
    states = [_state(worker, running=worker.worker_id in names) for worker in found]
    value = [{**row_value(worker), "state": state} for worker, state in zip(found, states, strict=True)]
    return Answer(value, lambda: _print_workers(found, states, now))


def _print_workers(found: Sequence[WorkerRow], states: Sequence[str], now: datetime) -> None:
    if not found:
        output.line("No worker runs.")
        return
    output.table(
        [
            Column("WORKER"), Column("STATE"), Column("QUEUES", folds=True), Column("OPERATIONS", folds=True),
            Column("SLOTS", right=True), Column("STARTED"), Column("LAST SEEN"),
        ],
        [
            (
                worker.worker_id, state, ", ".join(worker.queues), ", ".join(worker.operations), worker.concurrency,
                output.age(worker.started_at, now), output.age(worker.seen_at, now),
            )
            for worker, state in zip(found, states, strict=True)
        ],
    )  # fmt: skip


def _state(worker: WorkerRow, *, running: bool) -> str:
    if running:
        return "running"
    return "lost" if worker.stopped_at is None else "stopped"
