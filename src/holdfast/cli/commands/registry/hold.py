"""`holdfast registry hold`: stops real builds for the whole ledger, or allows them again."""

from enum import StrEnum
from typing import Annotated

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument
from holdfast.cli.options import REASON_HELP, GrantId, OperatorWord, actor, word
from holdfast.core.errors import InputError
from holdfast.explain.values import row_value


class Hold(StrEnum):
    """The state to put the hold in."""

    ON = "on"
    OFF = "off"


@command(Location.unopened)
def hold(
    location: Location,
    *,
    state: Annotated[
        Hold | None, argument(metavar="[on|off]", help="New state of the hold; without it, print the state.")
    ] = None,
    reason: Annotated[str | None, word("--reason", REASON_HELP, metavar="TEXT")] = None,
    grant: GrantId = None,
    operator: OperatorWord = None,
) -> Answer:
    """Stop real builds for the whole ledger (REGISTRATION_HOLD), or allow them again under a grant.

    A new governed prod ledger starts with the hold on.
    """
    from holdfast.governance.registry import registry as engine  # noqa: PLC0415 - see above
    from holdfast.governance.registry.preflight import registration_hold  # noqa: PLC0415
    from holdfast.governance.switches import REGISTRATION_HOLD  # noqa: PLC0415

    if state is not None and not reason:
        raise InputError("--reason is required.", next_step="Add --reason TEXT.")
    with location.open() as store:
        changed = state is not None and engine.hold(
            store, on=state is Hold.ON, actor=operator or actor(), reason=reason or "", grant_id=grant
        )
        with store.reading() as reading:
            held = registration_hold(reading)
            thrown = reading.switches.last(REGISTRATION_HOLD)
    value = {"held": held, "changed": changed, "switch": row_value(thrown) if thrown else None}
    by = f", by {thrown.actor}: {thrown.reason}" if thrown else ": the default of this ledger"
    message = f"{REGISTRATION_HOLD} is {'on' if held else 'off'}{by}"
    return Answer(value, output.clean(message))
