"""`holdfast switch`: stop something for the whole fleet, and lift that again by a grant.

Invariants: throwing asks for a name that stops something and a reason, and for nothing else; what a command did is what
the ledger answered.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.options import ID_MAX, actor
from holdfast.cli.output import Column
from holdfast.cli.values import row_value
from holdfast.core.governed import Switch
from holdfast.core.machines import SWITCH, SwitchState
from holdfast.core.records import JournalRow
from holdfast.store import Store

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.store.transaction import Reading

switch = group("Stop something for the fleet; lift it by a grant.", "quarantine")

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="operation:NAME, replay, replay:DATASET or REGISTRATION_HOLD.")
]
Operator = Annotated[str | None, typer.Option("--operator", "--as", metavar="NAME", help="Who acts (the user).")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.")]
GrantId = Annotated[
    int | None, typer.Option("--grant", min=1, max=ID_MAX, metavar="ID", help="The grant that permits it.")
]


@switch.command()
@command(Location.open)
def throw(
    store: Store[Any],
    *,
    name: Name,
    reason: Reason,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also one that nothing known to the ledger looks at: one of your own.")
    ] = False,
    operator: Operator = None,
) -> Answer:
    """Throw a switch: it holds from now on.

    operation:NAME stops an operation: no worker takes its jobs, which wait; what is running goes on.
    """
    from holdfast.governance import switches  # noqa: PLC0415 - see above

    if not anyway:
        with store.reading() as reading:
            switches.require_known_switch(reading, name)
    turned = switches.throw(store, name, actor=actor() if operator is None else operator, reason=reason)
    stops = name.removeprefix(switches.OPERATION) if name.startswith(switches.OPERATION) else None
    with store.reading() as reading:
        known = None if stops is None else stops in reading.operations.declared()
    found = turned.switch
    value = {**row_value(found), "changed": turned.changed}

    def human() -> None:
        said = f"{name} is on" if turned.changed else f"{name} was on already, by {found.thrown_by}: {found.reason}"
        output.line(output.clean(said))
        if known is False:
            output.line("note: no process has declared an operation of that name to this ledger")

    return Answer(value if known is None else {**value, "operation_known": known}, human)


@switch.command()
@command(Location.open)
def lift(
    store: Store[Any],
    *,
    name: Name,
    reason: Reason,
    grant: GrantId = None,
    operator: Operator = None,
) -> Answer:
    """Lift a switch, under a grant that is used up with it.

    Without --grant the one that fits is taken; in a dev ledger one is made out, and recorded as one's own.
    """
    from holdfast.governance import switches  # noqa: PLC0415 - see above

    turned = switches.lift(store, name, actor=actor() if operator is None else operator, reason=reason, grant_id=grant)
    found = turned.switch
    text = f"{name} is off, under grant {found.grant_id}" if turned.changed else f"{name} was off already"
    return Answer({**row_value(found), "changed": turned.changed}, output.clean(text))


@switch.command(name="list")
@command(Location.open)
def list_(
    store: Store[Any],
    *,
    every: Annotated[bool, typer.Option("--all", help="Also those that were lifted.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")] = 100,
) -> Answer:
    """List the switches that are on."""
    with store.reading() as reading:
        found = reading.switches.page(limit=limit) if every else list(reading.switches.on().values())[:limit]
        told = [_told(reading, thrown) for thrown in found]
        now = store.now()
    return Answer(told, lambda: _print(found, told, now))


def _told(reading: "Reading", thrown: Switch) -> dict[str, Any]:
    """Return a switch with why it was thrown and why it was lifted: its own reason is the last one."""
    rows: dict[str, JournalRow] = {row.event: row for row in reading.journal.of(thrown.switch_id, SWITCH.name)}
    on = thrown.state is SwitchState.ON
    return {
        **row_value(thrown),
        "reason": thrown.reason if on else rows["throw"].reason if "throw" in rows else None,
        "lifted_by": None if on else thrown.actor,
        "lifted_reason": None if on else thrown.reason,
    }


def _print(found: list[Switch], told: list[dict[str, Any]], now: datetime) -> None:
    if not found:
        output.line("no switch is on")
        return
    output.table(
        [
            Column("NAME"), Column("STATE"), Column("THROWN"), Column("BY"), Column("WHY", folds=True),
            Column("LIFTED"), Column("BY"), Column("GRANT"), Column("WHY", folds=True),
        ],
        [
            (
                thrown.name, thrown.state.value, output.age(thrown.created_at, now), thrown.thrown_by,
                told[i]["reason"] or "", output.age(thrown.updated_at, now) if told[i]["lifted_by"] else "",
                told[i]["lifted_by"] or "", thrown.grant_id or "", told[i]["lifted_reason"] or "",
            )
            for i, thrown in enumerate(found)
        ],
    )  # fmt: skip
