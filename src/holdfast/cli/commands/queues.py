"""`holdfast queues` and `workers`: list the queues of a ledger, limit them, and list the workers that serve them."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import click
import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.commands.limits import Burst, Rate, Running, changed, limit_value
from holdfast.cli.declare import argument, option
from holdfast.cli.options import RequiredReason, actor
from holdfast.cli.text import Column
from holdfast.core.errors import InputError
from holdfast.core.limit_texts import checked, limit_of, limit_text
from holdfast.core.limits import Limit
from holdfast.core.machines import JobState
from holdfast.core.records import time_text
from holdfast.explain.values import by_state, row_value
from holdfast.store import Store
from holdfast.store.transaction import Reading
from holdfast.store.verbs.alive import alive_workers, worker_state
from holdfast.store.verbs.fair import WEIGHT_DEFAULT, weights
from holdfast.store.verbs.gate import limits as depth_limits
from holdfast.store.verbs.gate import parking_queues
from holdfast.store.verbs.known_queues import known_queues
from holdfast.store.verbs.lists import WorkerRow
from holdfast.store.verbs.queues import PAUSED, QueueChange

PARKED_BUCKETS = 100_000
LISTED = (JobState.PENDING, JobState.RUNNING, JobState.FAILED, JobState.QUARANTINED)


queues = group("List the queues, and limit them.", "limits")
Queue = Annotated[str, argument(metavar="QUEUE", help="Name of the queue.")]


@queues.alone()
@command(Location.unopened)
def listed(location: Location, *, ctx: click.Context) -> Answer | None:
    """List the queues: their jobs, how long the oldest waits, limits, pauses and workers."""
    if ctx.invoked_subcommand is not None:
        return None
    with location.open() as store, store.reading() as reading:
        now = store.now()
        found = _queues(reading, now)
    return Answer(found, lambda: _print_queues(found, now))


def _queues(reading: Reading, now: datetime) -> list[dict[str, Any]]:
    """Return each queue with its counts, limits, pause and workers."""
    names, paused, alive = known_queues(reading), set(reading.queues.paused()), alive_workers(reading, now)
    counts, oldest, depths = reading.counts.current(), reading.lists.oldest_due(names), depth_limits(reading)
    ended, rules = reading.lists.ended_lately(now - timedelta(seconds=60)), reading.limits.rules()
    weighted, parks, parked = weights(reading), parking_queues(reading), Counter[str]()
    for _, queue, jobs in reading.limits.waiting(PARKED_BUCKETS):
        parked[queue] += jobs
    return [
        {
            "queue": name,
            "paused": name in paused,
            "workers": sum(name in worker.queues for worker in alive),
            **{state: n for state, n in by_state(counts, queue=name).items() if state in LISTED},
            "parked": parked[name],
            "oldest_due_at": time_text(oldest[name]) if name in oldest else None,
            "ended_a_minute": ended.get(name, 0),
            "limit": limit_value(rules.get(f"queue:{name}")),
            "depth_max": depths.get(name),
            "parks": name in parks,
            "weight": weighted.get(name, WEIGHT_DEFAULT),
        }
        for name in names
    ]


@queues.subcommand("limit")
@command(Location.open)
def limit_queue(
    store: Store[Any],
    *,
    queue: Queue,
    running: Running = None,
    rate: Rate = None,
    burst: Burst = None,
    off: Annotated[bool, option("--off", help="Remove the limit.")] = False,
    reason: RequiredReason,
) -> Answer:
    """Limit how many jobs of a queue run at once, and how many start in a time.

    `holdfast limits set` does the same for operations and keys, `holdfast limit` bounds how many jobs may wait.
    """
    subject = f"queue:{queue}"
    if off:
        return changed(store, subject, None, reason)
    return changed(store, subject, checked(subject, limit_of(running=running, rate=rate, burst=burst)), reason)


@queues.subcommand("weight")
@command(Location.open)
def weigh_queue(
    store: Store[Any],
    *,
    queue: Queue,
    weight: Annotated[float | None, argument(metavar="WEIGHT", help="Share of the queue, such as 3.")] = None,
    off: Annotated[bool, option("--off", help="Remove the weight: the queue has 1 again.")] = False,
    reason: RequiredReason,
) -> Answer:
    """Set the weight of a queue: its share of the claims of a worker.

    Example: holdfast queues weight orders 3 --reason 'orders before reports'
    """
    from holdfast.scheduling.fair import save_weight  # noqa: PLC0415 - the other commands need nothing of it

    if off == (weight is not None):
        raise InputError("Give a weight or --off.", next_step=f"holdfast queues weight {queue} 3 --reason TEXT")
    with store.transaction() as transaction:
        was_changed = save_weight(transaction, queue, weight, actor=actor(), reason=reason)
    value = {"queue": queue, "weight": WEIGHT_DEFAULT if weight is None else weight, "changed": was_changed}
    return Answer(value, output.clean(f"Queue {queue} has the weight {value['weight']:g}."))


@queues.subcommand("step")
@command(Location.open)
def step_priorities(
    store: Store[Any],
    *,
    seconds: Annotated[
        float | None, argument(metavar="SECONDS", help="Seconds of waiting that one step of priority is worth.")
    ] = None,
    off: Annotated[bool, option("--off", help="Remove the setting: one step of priority is worth 60 s again.")] = False,
    reason: RequiredReason,
) -> Answer:
    """Set how much waiting one step of priority is worth, for all queues.

    Example: holdfast queues step 300 --reason 'urgent work waits too long'
    """
    from holdfast.scheduling.fair import save_step, step  # noqa: PLC0415 - the other commands need nothing of it

    if off == (seconds is not None):
        raise InputError("Give a number of seconds or --off.", next_step="holdfast queues step 300 --reason TEXT")
    with store.transaction() as transaction:
        was_changed = save_step(transaction, seconds, actor=actor(), reason=reason)
        value = {"step_s": step(transaction), "changed": was_changed}
    return Answer(value, f"One step of priority is worth {value['step_s']:g} s of waiting.")


@queues.subcommand()
@command(Location.open)
def history(
    store: Store[Any],
    *,
    queue: Queue,
    limit: Annotated[int, option("--limit", min=1, max=1000, help="Maximum number of changes.")] = 20,
) -> Answer:
    """Show who changed the limit, the depth limit, the weight and the pause of a queue, when and why."""
    with store.reading() as reading:
        found, now = reading.queues.history(queue, limit=limit), store.now()
    return Answer([row_value(change) for change in found], lambda: _print_changes(found, now))


def _print_changes(found: Sequence[QueueChange], now: datetime) -> None:
    output.table(
        [Column("AT"), Column("WHAT"), Column("BEFORE"), Column("AFTER"), Column("BY"), Column("REASON", folds=True)],
        [
            (output.age(one.at, now), one.what, _said(one.before), _said(one.after), one.actor, one.reason)
            for one in found
        ],
        none="No changes.",
    )


def _said(value: str | None) -> str:
    """Return a value of a setting for people."""
    known = {None: "", PAUSED: "paused"}.get(value)
    if known is not None:
        return known
    decoded = msgspec.json.decode(value or "")
    return limit_text(msgspec.convert(decoded, Limit)) if isinstance(decoded, dict) else str(value)


def _print_queues(found: Sequence[dict[str, Any]], now: datetime) -> None:
    numbers = [Column(state.value.upper(), right=True) for state in LISTED]
    output.table(
        [Column("QUEUE"), Column("STATE"), Column("WORKERS", right=True), *numbers, Column("PARKED", right=True),
         Column("OLDEST", right=True), Column("A MINUTE", right=True), Column("LIMIT")],
        [
            [
                row["queue"],
                "paused" if row["paused"] else "open",
                row["workers"],
                *(
                    output.styled(row[state.value], output.STYLES[state] if row[state.value] else "dim")
                    for state in LISTED
                ),
                row["parked"],
                "" if row["oldest_due_at"] is None else output.age(datetime.fromisoformat(row["oldest_due_at"]), now),
                row["ended_a_minute"],
                _limits_text(row),
            ]
            for row in found
        ],
    )  # fmt: skip


def _limits_text(row: dict[str, Any]) -> str:
    limit = row["limit"]
    parts = [f"{limit['running']} at once" if limit["running"] else "", limit["rate"] or ""]
    parts.append("" if row["weight"] == WEIGHT_DEFAULT else f"weight {row['weight']:g}")
    more = ", more parked" if row["parks"] else ""
    parts.append("" if row["depth_max"] is None else f"{row['depth_max']} waiting{more}")
    return ", ".join(filter(None, parts))


@command(Location.open)
def workers(
    store: Store[Any],
    *,
    every: Annotated[bool, option("--all", help="List stopped and lost workers too.")] = False,
) -> Answer:
    """List the workers that run, with their queues and operations.

    A worker that was not seen for 10 s is silent: it hangs, or was killed. After 30 s it is lost.
    """
    with store.reading() as reading:
        now = store.now()
        alive = alive_workers(reading, now)
        found = reading.lists.workers() if every else alive
    names = {worker.worker_id for worker in alive}
    states = [worker_state(worker, names, now) for worker in found]
    value = [{**row_value(worker), "state": state} for worker, state in zip(found, states, strict=True)]
    return Answer(value, lambda: _print_workers(found, states, now))


def _print_workers(found: Sequence[WorkerRow], states: Sequence[str], now: datetime) -> None:
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
        none="No worker runs.",
    )  # fmt: skip
