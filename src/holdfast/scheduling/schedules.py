"""Schedules: an operation with its arguments, and when to submit it.

    @ledger.schedule("0 2 * * *", tz="America/New_York")
    @ledger.operation()
    def nightly(run, tick: datetime): ...

A schedule is a setting of the ledger. Those that a program declares are saved when its worker starts; those that the
command adds are the same kind of record. A handler with a parameter `tick` gets the time of its tick.

Invariants: a schedule is checked when it is declared or added; saving an unchanged schedule writes nothing; a schedule
that an operator has paused stays paused when its program starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from holdfast.core.arguments import refuse_unfit
from holdfast.core.digest import Json, payload_text
from holdfast.core.errors import RecordNotFoundError, ScheduleInvalidError
from holdfast.core.governed import Setting
from holdfast.core.guarded import guarded
from holdfast.core.records import time_text
from holdfast.engine.operations import Call, Operation
from holdfast.scheduling.times import TickTimes, tick_times
from holdfast.store.transaction import Reading, Transaction

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger

P = ParamSpec("P")
R = TypeVar("R")

KIND = "schedule"
CLIENT = "schedule"
TICK = "tick"
NAME_MAX = 200


class Missed(StrEnum):
    """What to do with ticks that passed while no worker ran."""

    ONCE = "once"  # fire the last of them
    ALL = "all"  # fire each of them
    SKIP = "skip"  # fire none that is more than a minute late


class Overlap(StrEnum):
    """What to do with a tick while the job of an earlier one is pending or running."""

    ALLOW = "allow"  # fire it
    SKIP = "skip"  # do not fire it
    QUEUE = "queue"  # fire it when the earlier job has ended


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When to submit which call; this is stored as JSON."""

    when: str
    operation: str
    tz: str = "UTC"
    payload: dict[str, Json] = {}
    queue: str | None = None
    priority: int | None = None
    missed: Missed = Missed.ONCE
    overlap: Overlap = Overlap.ALLOW
    tick: bool = False  # the call gets the time of the tick as its argument `tick`
    paused: bool = False

    @property
    def times(self) -> TickTimes:
        """Return when it ticks, or raise ScheduleInvalidError."""
        return tick_times(self.when, self.tz)

    def call(self, name: str, tick: datetime, *, manual: bool = False) -> Call:
        """Return the call of a tick; its key names the schedule and the tick, so that it is submitted once."""
        at = time_text(tick)
        return Call(
            operation=self.operation,
            payload={**self.payload, TICK: at} if self.tick else self.payload,
            client=CLIENT,
            key=f"{name}/manual/{at}" if manual else f"{name}/{at}",
            queue=self.queue,
            priority=self.priority,
        )


class Scheduled(msgspec.Struct, frozen=True):
    """A schedule as the ledger has it."""

    name: str
    schedule: Schedule
    setting: Setting


class Schedules:
    """The schedules of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def list(self) -> list[Scheduled]:
        """Return all schedules, by name."""
        with self._ledger.store.reading() as reading:
            return active(reading)

    def add(self, name: str, schedule: Schedule, *, actor: str, reason: str) -> bool:
        """Add a schedule, or change it; return whether that changed anything. Raise ScheduleInvalidError."""
        _check(self._ledger, name, schedule)
        return self._ledger.perform(lambda tx: _save(tx, name, schedule, actor, reason))

    def pause(self, name: str, *, actor: str, reason: str) -> bool:
        """Pause a schedule: its ticks do not fire, and are not made up for later. Return False if it was paused."""
        return self._set_paused(name, actor, reason, paused=True)

    def resume(self, name: str, *, actor: str, reason: str) -> bool:
        """Resume a schedule from its next tick; return False if it was not paused."""
        return self._set_paused(name, actor, reason, paused=False)

    def remove(self, name: str, *, actor: str, reason: str) -> None:
        """Remove a schedule; jobs that it has submitted stay. Raise RecordNotFoundError if there is none."""

        def write(tx: Transaction) -> None:
            get(tx, name)
            tx.configuration.remove(KIND, name, actor=actor, reason=reason)

        self._ledger.perform(write)

    def trigger(self, name: str, *, actor: str | None = None, reason: str | None = None) -> int:
        """Submit the job of a schedule now, beside its ticks; return the job's id.

        The journal names the actor and the reason; without them, the client `schedule`.
        """
        with self._ledger.store.reading() as reading:
            found = get(reading, name)
        call = found.schedule.call(name, self._ledger.store.now(), manual=True)
        return self._ledger.perform(lambda tx: self._ledger.submit_in(tx, [call], actor=actor, reason=reason))[0].job_id

    def _set_paused(self, name: str, actor: str, reason: str, *, paused: bool) -> bool:
        def write(tx: Transaction) -> bool:
            changed = msgspec.structs.replace(get(tx, name).schedule, paused=paused)
            return tx.configuration.set(KIND, name, _text(changed), actor=actor, reason=reason)

        return self._ledger.perform(write)


def active(reading: Reading) -> list[Scheduled]:
    """Return the schedules of a ledger, paused ones too, by name."""
    return [_scheduled(setting) for setting in reading.configuration.active(KIND)]


def schedule_values(reading: Reading, found: Sequence[Scheduled], now: datetime) -> list[dict[str, Any]]:
    """Return schedules as JSON objects, each with its next tick and its last job."""
    ticks = reading.schedules.last_ticks([one.name for one in found])
    values = []
    for one in found:
        schedule, last = one.schedule, ticks.get(one.name)
        values.append(
            {
                "name": one.name,
                "when": schedule.when,
                "tz": schedule.tz,
                "operation": schedule.operation,
                "payload": schedule.payload,
                "queue": schedule.queue,
                "priority": schedule.priority,
                "missed": schedule.missed.value,
                "overlap": schedule.overlap.value,
                "paused": schedule.paused,
                "next_at": None if schedule.paused else time_text(schedule.times.next_after(now)),
                "last_at": time_text(last.tick_at) if last else None,
                "last_job_id": last.job_id if last else None,
                "last_job_state": last.state if last else None,
                "set_by": one.setting.actor,
                "reason": one.setting.reason,
            }
        )
    return values


def get(reading: Reading, name: str) -> Scheduled:
    """Return a schedule, or raise RecordNotFoundError."""
    setting = reading.configuration.get(KIND, name)
    if setting is None:
        raise RecordNotFoundError(
            f"There is no schedule {name!r}.",
            next_step="To list the schedules, run `holdfast schedules list`.",
            context={"schedule": name},
        )
    return _scheduled(setting)


@guarded
def declare(
    ledger: Ledger,
    when: str,
    *,
    name: str | None = None,
    arguments: Mapping[str, Json] | None = None,
    tz: str = "UTC",
    missed: str = Missed.ONCE,
    overlap: str = Overlap.ALLOW,
    queue: str | None = None,
    priority: int | None = None,
) -> Callable[[Operation[P, R]], Operation[P, R]]:
    """Return a decorator that schedules an operation; see `Ledger.schedule`."""
    given = {"name": name, "arguments": arguments, "tz": tz, "missed": missed, "overlap": overlap, "queue": queue}
    for argument, value in given.items():
        refuse_unfit(argument, value, declare.__annotations__[argument])
    tick_times(when, tz)  # an error belongs to the line that has it
    policies = {"missed": policy(Missed, missed), "overlap": policy(Overlap, overlap)}

    def add(operation: Operation[P, R]) -> Operation[P, R]:
        if not isinstance(operation, Operation):
            raise ScheduleInvalidError(
                f"{getattr(operation, '__name__', operation)!r} is not an operation.",
                next_step="Put @ledger.schedule(…) above @ledger.operation().",
            )
        schedule = Schedule(
            when=when,
            tz=tz,
            operation=operation.name,
            payload=dict(arguments or {}),
            queue=queue,
            priority=priority,
            tick=TICK in signature(operation.fn).parameters and TICK not in (arguments or {}),
            **policies,
        )
        label = operation.name if name is None else name
        _check(ledger, label, schedule)
        if label in ledger.scheduled:
            raise ScheduleInvalidError(
                f"The schedule {label!r} is declared twice.", next_step="Give one of them another name=…"
            )
        ledger.scheduled[label] = schedule
        return operation

    return add


def save_declared(ledger: Ledger, *, actor: str) -> None:
    """Save the schedules that this program declares."""
    reason = "declared by the program"

    def write(tx: Transaction) -> None:
        for name, schedule in sorted(ledger.scheduled.items()):
            _save(tx, name, schedule, actor, reason)

    ledger.perform(write)


def policy(kind: type[Missed | Overlap], value: str) -> Any:
    """Return a policy by its name, or raise ScheduleInvalidError."""
    try:
        return kind(value)
    except ValueError:
        words = ", ".join(kind)
        raise ScheduleInvalidError(
            f"{kind.__name__.lower()} is {value!r}.", next_step=f"Use one of {words}.", context={"value": str(value)}
        ) from None


def _save(tx: Transaction, name: str, schedule: Schedule, actor: str, reason: str) -> bool:
    """Save a schedule; one that is paused stays paused."""
    before = tx.configuration.get(KIND, name)
    if before is not None and _scheduled(before).schedule.paused:
        schedule = msgspec.structs.replace(schedule, paused=True)
    return tx.configuration.set(KIND, name, _text(schedule), actor=actor, reason=reason)


def _check(ledger: Ledger, name: str, schedule: Schedule) -> None:
    if not name.strip() or len(name) > NAME_MAX or not name.isprintable():
        raise ScheduleInvalidError(
            f"{name[:NAME_MAX]!r} is not a name of a schedule.",
            next_step=f"Use up to {NAME_MAX} printable characters.",
        )
    _ = schedule.times
    operation = ledger.operations.get(schedule.operation)
    if operation is not None:
        operation.checked(schedule.call(name, datetime.now(UTC)).payload)
    payload_text(schedule.payload)


def _scheduled(setting: Setting) -> Scheduled:
    return Scheduled(setting.name, msgspec.json.decode(setting.value, type=Schedule), setting)


def _text(schedule: Schedule) -> str:
    return msgspec.json.encode(schedule, order="deterministic").decode()
