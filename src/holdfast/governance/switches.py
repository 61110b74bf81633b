"""Kill switches: anyone may throw one immediately; lifting one needs a grant.

A switch is a name. `operation:<name>` stops an operation: no worker claims its jobs, which stay as they are. `replay`
and `replay:<queue>` stop replays, `REGISTRATION_HOLD` stops builds of the registry. Any other name stops the programs
that check it; the ledger does not know those names, so the command requires --anyway for them.

Invariants: throwing a switch needs no grant; lifting a switch and using its grant are one transaction; throwing a
switch that is on, or lifting one that is off, changes nothing and uses no grant.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from holdfast.core.authority import ANY, WORD_BYTES_MAX, Act, Wanted, is_exact, require_words
from holdfast.core.decide import Refused
from holdfast.core.environments import DEV
from holdfast.core.errors import InputError, RecordNotFoundError, RefusedError, StateTransitionRaceError
from holdfast.core.governed import Switch
from holdfast.core.machines import SWITCH, JobState, SwitchState
from holdfast.governance.acts import RACES_MAX, actor_and_reason, retried
from holdfast.governance.approval import environment_of, wanted_here
from holdfast.governance.grants import authorise

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction

REPLAY = "replay"
REPLAY_OF = "replay:"  # and the queue
OPERATION = "operation:"  # and the operation; the statement that claims jobs uses the same prefix
REGISTRATION_HOLD = "REGISTRATION_HOLD"
TARGET = "switch:"  # and the switch: the target of a grant to lift it
PAUSE_TARGET = "queue:"  # and the queue: the target of a grant to lift its pause
SUGGESTED, NAMED_MAX = 3, 20  # of the known names, in the message about an unknown one
NAME_BYTES_MAX = WORD_BYTES_MAX - len(TARGET)


class SwitchChange(msgspec.Struct, frozen=True):
    """A switch, and whether this call changed it."""

    switch: Switch
    changed: bool


# ---------------------------------------------------------------------------------------------------------------------
# Throwing and lifting


def throw(store: Store[Any], name: str, *, actor: str, reason: str) -> SwitchChange:
    """Throw a switch and return it. One that is already on keeps its reason and the name of who threw it."""
    require_name(name)
    who, why = actor_and_reason(actor, reason)
    for _ in range(RACES_MAX):
        with store.transaction() as transaction:
            changed = transaction.switches.throw(name, actor=who, reason=why)
            switch = transaction.switches.on().get(name)
            if switch is not None:  # else it was lifted between the two statements: throw it again
                return SwitchChange(switch, changed)
    raise StateTransitionRaceError(
        f"The switch {name} was lifted {RACES_MAX} times while it was being thrown.", context={"switch": name}
    )


def lift(store: Store[Any], name: str, *, actor: str, reason: str, grant_id: int | None = None) -> SwitchChange:
    """Lift a switch, consume the grant for it, and return the switch. If it is already off, no grant is used."""
    require_name(name)
    who, why = actor_and_reason(actor, reason)
    return retried(store, lambda transaction: lift_in(transaction, name, who, why, grant_id))


def lift_in(transaction: Transaction, name: str, actor: str, reason: str, grant_id: int | None) -> SwitchChange:
    """Lift a switch in the caller's transaction, as `lift` does."""
    switch = transaction.switches.on().get(name)
    if switch is None:
        return SwitchChange(_off(transaction, name), changed=False)
    move_id = uuid4().hex
    wanted = lift_act(transaction, name, actor)
    used = authorise(transaction, wanted, grant_id=grant_id, reason=reason, move_id=move_id)
    answer = transaction.switches.lift(switch, grant_id=used, actor=actor, reason=reason, move_id=move_id)
    if isinstance(answer, Refused):
        raise StateTransitionRaceError(answer.message, context={"switch": name})
    if name.startswith(OPERATION):
        transaction.queues_to_announce.update(_waiting(transaction, name.removeprefix(OPERATION)))
    return SwitchChange(_off(transaction, name), changed=True)


def resume_queue(store: Store[Any], queue: str, *, actor: str, reason: str, grant_id: int | None = None) -> bool:
    """Resume a paused queue and return whether it was paused; outside dev a grant to lift the pause is consumed.

    A pause stops replays of a queue like a switch, so that lifting it is governed like one.
    """
    who, why = actor_and_reason(actor, reason)
    with store.transaction() as transaction:
        if queue not in transaction.queues.paused():
            return False
        if environment_of(transaction) != DEV:
            wanted = wanted_here(transaction, Act.LIFT, PAUSE_TARGET + queue, who)
            authorise(transaction, wanted, grant_id=grant_id, reason=why)
        transaction.queues.resume(queue, actor=who, reason=why)
        return True


def lift_act(reading: Reading, name: str, actor: str) -> Wanted:
    """Return the act that a grant to lift a switch must permit."""
    return wanted_here(reading, Act.LIFT, TARGET + name, actor)


def _off(reading: Reading, name: str) -> Switch:
    """Return the last record of a switch that is off; raise RecordNotFoundError if it was never thrown."""
    thrown = reading.switches.last(name)
    if thrown is None:
        raise RecordNotFoundError(
            f"No switch named {name!r} was ever thrown.",
            next_step="List all switches: `holdfast switch list --all`.",
            context={"switch": name},
        )
    return thrown


def _waiting(reading: Reading, operation: str) -> set[str]:
    """Return the queues in which jobs of an operation are pending."""
    return {
        count.queue
        for count in reading.counts.current()
        if count.operation == operation and count.state is JobState.PENDING and count.n
    }


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def known_switches(reading: Reading) -> list[str]:
    """Return the switches that Holdfast itself checks: operations, replays, and the registration hold."""
    operations = reading.operations.declared()
    queues = {declared.queue for declared in operations.values()} | {count.queue for count in reading.counts.current()}
    return [
        *(OPERATION + name for name in sorted(operations)),
        REPLAY,
        *(REPLAY_OF + name for name in sorted(queues)),
        REGISTRATION_HOLD,
    ]


def operation_of(name: str) -> str | None:
    """Return the operation that a switch stops; None for another switch."""
    return name.removeprefix(OPERATION) if name.startswith(OPERATION) else None


def reasons_of(reading: Reading, switch: Switch) -> dict[str, str | None]:
    """Return why a switch was thrown, and who lifted it and why; the record itself keeps only the last reason."""
    if switch.state is SwitchState.ON:
        return {"reason": switch.reason, "lifted_by": None, "lifted_reason": None}
    moves = {row.event: row.reason for row in reading.journal.of(switch.switch_id, SWITCH.name)}
    return {"reason": moves.get("throw"), "lifted_by": switch.actor, "lifted_reason": switch.reason}


def require_known_switch(reading: Reading, name: str) -> None:
    """Raise InputError if no part of this ledger checks a switch: a misspelt name would stop nothing."""
    require_name(name)
    names = known_switches(reading)
    if name in names or reading.switches.last(name) is not None:
        return
    near = get_close_matches(name, names, n=SUGGESTED)
    more = [known for known in names if known not in near][: NAMED_MAX - len(near)]
    left = len(names) - len(near) - len(more)
    listed = ", ".join([*near, *more]) + (f" and {left} more" if left else "")
    raise InputError(
        f"Nothing in this ledger checks the switch {name!r}: throwing it would stop nothing.",
        next_step=f"Use one of {listed}; or give --anyway if a program of yours checks it.",
        context={"field": "name", "switch": name, "switches": names},
    )


def on(reading: Reading, names: Iterable[str]) -> list[Switch]:
    """Return those of the named switches that are on, in the given order."""
    thrown = reading.switches.on()
    return [thrown[name] for name in dict.fromkeys(names) if name in thrown]


def stopping(reading: Reading, operation: str) -> Switch | None:
    """Return the switch of an operation if it is on, else None."""
    return next(iter(on(reading, [OPERATION + operation])), None)


def switched_off_error(operation: str, switch: Switch) -> RefusedError:
    """Return the error for work on an operation that is switched off."""
    return RefusedError(
        f"Operation {operation} was switched off by {switch.thrown_by}: {switch.reason}",
        next_step=f"Lift the switch: `holdfast switch lift {shlex.quote(switch.name)} --reason TEXT`.",
        context={"switch": switch.name, "thrown_by": switch.thrown_by, "reason": switch.reason},
    )


# ---------------------------------------------------------------------------------------------------------------------
# Names


def require_name(name: str) -> None:
    """Raise InputError unless this is a valid name for a switch and for the target of a grant to lift it."""
    require_words(NAME_BYTES_MAX, name=name)
    if not name.isprintable() or name != name.strip() or not is_exact(name) or name in (OPERATION, REPLAY_OF):
        raise InputError(
            f"{name!r} is not a valid name for a switch.",
            next_step=f"Use printable characters, no {ANY}, and no spaces at either end, such as operation:NAME.",
            context={"field": "name"},
        )
