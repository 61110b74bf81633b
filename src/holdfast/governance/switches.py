"""Kill switches: whoever sees harm throws one, and it holds from then on; to lift it takes a grant.

A switch is a name. `operation:<name>` stops an operation: no worker claims its jobs, which stay as they are. `replay`
and `replay:<dataset>` stop replays, `REGISTRATION_HOLD` the registry; any other name stops what asks for it. A program
that throws one of its own knows what asks for it; of a person such a name may be a slip.

Invariants: throwing needs nobody's leave and is never refused for being late; the lifting of a switch and the use of
its grant are one transaction; a switch that is on already, or off already, is left as it is and nothing is used up.
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
from holdfast.core.errors import (
    InputError,
    RecordNotFoundError,
    RefusedError,
    StateTransitionRaceError,
)
from holdfast.core.governed import Switch
from holdfast.core.machines import JobState
from holdfast.governance.acts import RACES_MAX, actor_and_reason, retry_races
from holdfast.governance.grants import authorise, environment_of

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.transaction import Reading, Transaction

REPLAY = "replay"
REPLAY_OF = "replay:"  # and the dataset
OPERATION = "operation:"  # and the operation; the claim asks for these by the same word
REGISTRATION_HOLD = "REGISTRATION_HOLD"
TARGET = "switch:"  # and the switch: what a grant to lift it is for
SUGGESTED, NAMED_MAX = 3, 20  # of the names that there are, when one is not among them
NAME_BYTES_MAX = WORD_BYTES_MAX - len(TARGET)


class SwitchChange(msgspec.Struct, frozen=True):
    """A switch as it stands now, and whether it was turned just now."""

    switch: Switch
    changed: bool


# ---------------------------------------------------------------------------------------------------------------------
# Turning


def throw(store: Store[Any], name: str, *, actor: str, reason: str) -> SwitchChange:
    """Throw a switch; one that is on already stays as it is, with the name and the reason of whoever threw it."""
    require_name(name)
    who, why = actor_and_reason(actor, reason)
    for _ in range(RACES_MAX):
        with store.transaction() as transaction:
            changed = transaction.switches.throw(name, actor=who, reason=why)
            switch = transaction.switches.on().get(name)
            if switch is not None:  # else it was lifted between the two, and is to be thrown again
                return SwitchChange(switch, changed)
    raise StateTransitionRaceError(f"the switch {name} is being lifted all the time", context={"switch": name})


def lift(store: Store[Any], name: str, *, actor: str, reason: str, grant_id: int | None = None) -> SwitchChange:
    """Lift a switch under a grant, which is used up with it; one that is off already uses nothing up."""
    require_name(name)
    who, why = actor_and_reason(actor, reason)

    def once() -> SwitchChange:
        with store.transaction() as transaction:
            return _lifted(transaction, name, who, why, grant_id)

    return retry_races(once)


def _lifted(transaction: Transaction, name: str, actor: str, reason: str, grant_id: int | None) -> SwitchChange:
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


def lift_act(reading: Reading, name: str, actor: str) -> Wanted:
    """Return what a grant to lift a switch must permit."""
    return Wanted(act=Act.LIFT, target=TARGET + name, environment=environment_of(reading), executor=actor)


def _off(reading: Reading, name: str) -> Switch:
    """Return the last throwing of a switch that is off, or raise: a name that was never thrown may be misspelt."""
    thrown = reading.switches.last(name)
    if thrown is None:
        raise RecordNotFoundError(
            f"no switch was ever thrown under the name {name!r}",
            next_step="List those that were: `holdfast switch list --all`.",
            context={"switch": name},
        )
    return thrown


def _waiting(reading: Reading, operation: str) -> set[str]:
    """Return the queues where jobs of an operation wait."""
    return {
        count.queue
        for count in reading.counts.current()
        if count.operation == operation and count.state is JobState.PENDING and count.n
    }


# ---------------------------------------------------------------------------------------------------------------------
# Asking


def known_switches(reading: Reading) -> list[str]:
    """Return the switches that something looks at, as far as the ledger knows: none of anybody's own."""
    operations = reading.operations.declared()
    queues = {declared.queue for declared in operations.values()} | {count.queue for count in reading.counts.current()}
    return [
        *(OPERATION + name for name in sorted(operations)),
        REPLAY,
        *(REPLAY_OF + name for name in sorted(queues)),
        REGISTRATION_HOLD,
    ]


def require_known_switch(reading: Reading, name: str) -> None:
    """Raise InputError if a switch would stop nothing: a slip of the pen must not look like a stop."""
    require_name(name)
    names = known_switches(reading)
    if name in names or reading.switches.last(name) is not None:
        return
    near = get_close_matches(name, names, n=SUGGESTED)
    more = [known for known in names if known not in near][: NAMED_MAX - len(near)]
    left = len(names) - len(near) - len(more)
    listed = ", ".join([*near, *more]) + (f" and {left} more" if left else "")
    raise InputError(
        f"nothing that this ledger knows of looks at the switch {name!r}: it would stop nothing",
        next_step=f"Name one of {listed}; or give --anyway, for one of your own or for what is yet to come.",
        context={"field": "name", "switch": name, "switches": names},
    )


def on(reading: Reading, names: Iterable[str]) -> list[Switch]:
    """Return those of some switches that are on, in the order that they were asked for."""
    thrown = reading.switches.on()
    return [thrown[name] for name in dict.fromkeys(names) if name in thrown]


def stopping(reading: Reading, operation: str) -> Switch | None:
    """Return the switch that stops an operation, if it is on."""
    return next(iter(on(reading, [OPERATION + operation])), None)


def switched_off_error(operation: str, switch: Switch) -> RefusedError:
    """Return the error for work that a switch stops."""
    return RefusedError(
        f"the operation {operation} was switched off by {switch.thrown_by}: {switch.reason}",
        next_step=f"Have it lifted first: `holdfast switch lift {shlex.quote(switch.name)} --reason TEXT`.",
        context={"switch": switch.name},
    )


# ---------------------------------------------------------------------------------------------------------------------
# Names


def require_name(name: str) -> None:
    """Raise InputError unless a switch, and a grant to lift it, can have this name."""
    require_words(NAME_BYTES_MAX, name=name)
    if not name.isprintable() or name != name.strip() or not is_exact(name) or name in (OPERATION, REPLAY_OF):
        raise InputError(
            f"{name!r} is not a name for a switch",
            next_step=f"Name what is to be stopped: printable, without {ANY}, and no blanks around it.",
            context={"field": "name"},
        )
