"""`holdfast schedules`: list, add, pause, resume, trigger and remove schedules, and show their ticks.

Invariants: a schedule is checked before the ledger is changed; every change is journalled with its actor and reason.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.declare import argument, option
from holdfast.cli.options import Operation, RequiredReason, actor, word
from holdfast.cli.text import Column
from holdfast.core.errors import InputError
from holdfast.core.json_input import loads
from holdfast.core.records import time_text
from holdfast.explain.values import row_value
from holdfast.store.configuration import configuration

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.engine.ledger import Ledger
    from holdfast.scheduling.schedules import Schedules

schedules = group("Submit work at certain times.", "guide")

Name = Annotated[str, argument(metavar="NAME", help="Name of the schedule.")]


@schedules.subcommand("list")
@command(Location.ledger)
def list_(ledger: "Ledger") -> Answer:
    """List the schedules with their next tick."""
    from holdfast.scheduling.schedules import active, schedule_values  # noqa: PLC0415 - see above

    now = ledger.store.now()
    with ledger.store.reading() as reading:
        values = schedule_values(reading, active(reading), now)
    return Answer(values, lambda: _print(values, now))


@schedules.subcommand()
@command(Location.ledger)
def add(
    ledger: "Ledger",
    *,
    name: Name,
    when: Annotated[str, argument(metavar="WHEN", help="Cron fields '0 2 * * *', a name '@daily', or 'every 15m'.")],
    operation: Operation,
    payload: Annotated[str, argument(metavar="PAYLOAD", help="Arguments of the operation, as JSON.")] = "{}",
    reason: RequiredReason,
    tz: Annotated[str, word("--tz", "Time zone of the cron fields.", metavar="ZONE")] = "UTC",
    missed: Annotated[
        str, word("--missed", "Ticks while no worker ran: once, all or skip.", metavar="POLICY")
    ] = "once",
    overlap: Annotated[
        str, word("--overlap", "A tick while an earlier job is open: allow, skip or queue.", metavar="POLICY")
    ] = "allow",
    queue: Annotated[str | None, word("--queue", "Queue (default: the queue of the operation).")] = None,
    priority: Annotated[int | None, option("--priority", help="Priority of the jobs.")] = None,
    pass_tick: Annotated[bool, option("--pass-tick", help="Pass the time of the tick as the argument `tick`.")] = False,
) -> Answer:
    """Add a schedule, or change the one of this name.

    Example: holdfast schedules add nightly '0 2 * * *' report --tz America/New_York --reason 'nightly report'
    """
    from holdfast.engine.unfit import refuse_unknown  # noqa: PLC0415 - see above
    from holdfast.scheduling.schedules import (  # noqa: PLC0415 - see above
        Missed,
        Overlap,
        Schedule,
        get,
        policy,
        schedule_values,
    )

    arguments = loads(payload, size_max=configuration().payload_max_bytes)
    if not isinstance(arguments, dict):
        raise InputError("The payload must be a JSON object.", next_step='Write it as \'{"name": "value"}\'.')
    schedule = Schedule(
        when=when,
        operation=operation,
        tz=tz,
        payload=arguments,
        queue=queue,
        priority=priority,
        missed=policy(Missed, missed),
        overlap=policy(Overlap, overlap),
        tick=pass_tick,
    )
    with ledger.store.reading() as reading:
        known = {"noop", *reading.operations.declared()}
        if not (reading.governed or operation in known):
            refuse_unknown(operation, known)  # no tick could submit its job
    changed = _schedules(ledger).add(name, schedule, actor=actor(), reason=reason)
    with ledger.store.reading() as reading:
        [value] = schedule_values(reading, [get(reading, name)], ledger.store.now())
    value["changed"] = changed
    text = f"Schedule {name} {'saved' if changed else 'is unchanged'}; next tick {value['next_at'] or 'none: paused'}."
    return Answer(value, output.clean(text))


@schedules.subcommand()
@command(Location.ledger)
def pause(ledger: "Ledger", *, name: Name, reason: RequiredReason) -> Answer:
    """Pause a schedule; its ticks do not fire, and are not made up for later."""
    changed = _schedules(ledger).pause(name, actor=actor(), reason=reason)
    text = f"Schedule {name} paused." if changed else f"Schedule {name} was already paused."
    return Answer({"name": name, "paused": True, "changed": changed}, output.clean(text))


@schedules.subcommand()
@command(Location.ledger)
def resume(ledger: "Ledger", *, name: Name, reason: RequiredReason) -> Answer:
    """Resume a paused schedule from its next tick."""
    changed = _schedules(ledger).resume(name, actor=actor(), reason=reason)
    text = f"Schedule {name} resumed." if changed else f"Schedule {name} was not paused."
    return Answer({"name": name, "paused": False, "changed": changed}, output.clean(text))


@schedules.subcommand()
@command(Location.ledger)
def trigger(ledger: "Ledger", *, name: Name) -> Answer:
    """Submit the job of a schedule now, beside its ticks."""
    job_id = _schedules(ledger).trigger(name)
    return Answer({"name": name, "job_id": job_id}, output.clean(f"Schedule {name}: submitted job {job_id}."))


@schedules.subcommand()
@command(Location.ledger)
def remove(ledger: "Ledger", *, name: Name, reason: RequiredReason) -> Answer:
    """Remove a schedule. Its jobs stay. A program that still declares it adds it again when its worker starts."""
    _schedules(ledger).remove(name, actor=actor(), reason=reason)
    return Answer({"name": name, "removed": True}, output.clean(f"Schedule {name} removed."))


@schedules.subcommand()
@command(Location.ledger)
def history(
    ledger: "Ledger",
    *,
    name: Name,
    limit: Annotated[int, option("--limit", min=1, max=1000, help="Maximum number of ticks.")] = 20,
) -> Answer:
    """Show the last ticks of a schedule with their jobs, and the changes of the schedule."""
    from holdfast.scheduling.schedules import KIND  # noqa: PLC0415 - see above

    with ledger.store.reading() as reading:
        ticks = reading.schedules.ticks(name, limit=limit)
        changes = reading.configuration.history(KIND, name, limit=limit)
        states = {job.job_id: job.state for job in reading.jobs.get_many([t.job_id for t in ticks if t.job_id])}
        now = ledger.store.now()
    value = {
        "name": name,
        "ticks": [{**row_value(tick), "job_state": states.get(tick.job_id or 0)} for tick in ticks],
        "changes": [row_value(setting) for setting in changes],
    }

    def human() -> None:
        if not ticks and not changes:
            output.line(output.clean(f"Schedule {name} has no ticks."))
            return
        output.table(
            [Column("TICK"), Column("OUTCOME"), Column("JOB", right=True), Column("STATE")],
            [(time_text(t.tick_at), t.outcome, t.job_id or "", states.get(t.job_id or 0, "")) for t in ticks],
        )
        output.table(
            [Column("CHANGED"), Column("STATE"), Column("BY"), Column("REASON", folds=True)],
            [(output.age(one.updated_at, now), one.state.value, one.actor, one.reason) for one in changes],
        )

    return Answer(value, human)


def _schedules(ledger: "Ledger") -> "Schedules":
    from holdfast.scheduling.schedules import Schedules  # noqa: PLC0415 - see above

    return Schedules(ledger)


def _print(values: list[dict[str, Any]], now: datetime) -> None:
    columns = ("NAME", "WHEN", "ZONE", "OPERATION", "NEXT", "LAST", "JOB", "STATE")
    output.table(
        [Column(name) for name in columns],
        [
            (
                one["name"], one["when"], one["tz"], one["operation"],
                "paused" if one["paused"] else _in(one["next_at"], now), one["last_at"] or "",
                one["last_job_id"] or "", one["last_job_state"] or "",
            )
            for one in values
        ],
        none="No schedules.",
    )  # fmt: skip


def _in(moment: str, now: datetime) -> str:
    return f"in {output.span((datetime.fromisoformat(moment) - now).total_seconds())}"
