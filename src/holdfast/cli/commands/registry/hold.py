"""`holdfast registry hold`: stop real builds for the whole ledger, or let them go on."""

from enum import StrEnum
from typing import Annotated

import typer

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.commands.registry.options import GrantId, Operator
from holdfast.cli.options import actor, word
from holdfast.cli.values import row_value
from holdfast.core.errors import InputError


class Hold(StrEnum):
    """What is to become of the hold."""

    ON = "on"
    OFF = "off"


@command(Location.unopened)
def hold(
    location: Location,
    *,
    state: Annotated[Hold | None, typer.Argument(metavar="[on|off]", help="Without it, say how it stands.")] = None,
    reason: Annotated[str | None, word("--reason", "Why: it stays in the journal.", metavar="TEXT")] = None,
    grant: GrantId = None,
    operator: Operator = None,
) -> Answer:
    """Hold real builds for the whole ledger (REGISTRATION_HOLD), or lift the hold under a grant.

    A governed prod ledger is held from the start.
    """
    from holdfast.governance.registry import registry as engine  # noqa: PLC0415 - see above
    from holdfast.governance.switches import REGISTRATION_HOLD  # noqa: PLC0415

    if state is not None and not reason:
        raise InputError("a hold is thrown and lifted for a reason", next_step="Give --reason.")
    with location.open() as store:
        changed = state is not None and engine.hold(
            store, on=state is Hold.ON, actor=operator or actor(), reason=reason or "", grant_id=grant
        )
        with store.reading() as reading:
            held = engine.registration_hold(reading)
            thrown = reading.switches.last(REGISTRATION_HOLD)
    value = {"held": held, "changed": changed, "switch": row_value(thrown) if thrown else None}
    by = f", by {thrown.actor}: {thrown.reason}" if thrown else ", as a ledger of its kind is from the start"
    said = f"{REGISTRATION_HOLD} is {'on' if held else 'off'}{by}"
    return Answer(value, output.clean(said))
