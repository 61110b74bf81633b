"""`holdfast switch`: stops an operation or replays for all workers, and allows them again under a grant.

Invariants: to throw a switch needs no grant, only a reason; the printed result is what the ledger returned.
"""

from datetime import datetime
from typing import Annotated, Any

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.declare import argument, option
from holdfast.cli.options import GrantId, Operator, RequiredReason, actor
from holdfast.cli.text import Column
from holdfast.core.governed import Switch
from holdfast.explain.values import row_value
from holdfast.store import Store

switch = group("Stop an operation, or replays, for all workers; allow it again.", "quarantine")

Name = Annotated[
    str,
    argument(metavar="NAME", help="Name of the switch: operation:NAME, replay, replay:DATASET or REGISTRATION_HOLD."),
]


@switch.subcommand()
@command(Location.open)
def throw(
    store: Store[Any],
    *,
    name: Name,
    reason: RequiredReason,
    anyway: Annotated[
        bool, option("--anyway", help="Allow a name that the ledger does not know: a switch of your own code.")
    ] = False,
    operator: Operator = None,
) -> Answer:
    """Throw a switch: what it names stops now.

    operation:NAME stops an operation: workers do not claim its jobs until the switch is lifted. Running jobs continue.
    """
    from holdfast.governance import switches  # noqa: PLC0415 - see above

    if not anyway:
        with store.reading() as reading:
            switches.require_known_switch(reading, name)
    turned = switches.throw(store, name, actor=actor() if operator is None else operator, reason=reason)
    stops = switches.operation_of(name)
    with store.reading() as reading:
        known = None if stops is None else stops in reading.operations.declared()
    found = turned.switch
    value = {**row_value(found), "changed": turned.changed}

    def human() -> None:
        already = f"Switch {name} was already on, thrown by {found.thrown_by}: {found.reason}"
        output.line(output.clean(f"Switch {name} is on." if turned.changed else already))
        if known is False:
            output.line("note: No process has declared an operation with this name to this ledger.")

    return Answer(value if known is None else {**value, "operation_known": known}, human)


@switch.subcommand()
@command(Location.open)
def lift(
    store: Store[Any],
    *,
    name: Name,
    reason: RequiredReason,
    grant: GrantId = None,
    operator: Operator = None,
) -> Answer:
    """Lift a switch under a grant, which is consumed.

    Without --grant a grant that fits is used. In a dev ledger one is created automatically.
    """
    from holdfast.governance import switches  # noqa: PLC0415 - see above

    turned = switches.lift(store, name, actor=actor() if operator is None else operator, reason=reason, grant_id=grant)
    found = turned.switch
    text = (
        f"Switch {name} is off, under grant {found.grant_id}." if turned.changed else f"Switch {name} was already off."
    )
    return Answer({**row_value(found), "changed": turned.changed}, output.clean(text))


@switch.subcommand("list")
@command(Location.open)
def list_(
    store: Store[Any],
    *,
    every: Annotated[bool, option("--all", help="Include lifted switches.")] = False,
    limit: Annotated[int, option("--limit", min=1, max=10_000, help="Maximum number of switches.")] = 100,
) -> Answer:
    """List the switches that are on."""
    from holdfast.governance import switches  # noqa: PLC0415 - see above

    with store.reading() as reading:
        found = reading.switches.page(limit=limit) if every else list(reading.switches.on().values())[:limit]
        values = [{**row_value(thrown), **switches.reasons_of(reading, thrown)} for thrown in found]
        now = store.now()
    return Answer(values, lambda: _print(found, values, now))


def _print(found: list[Switch], values: list[dict[str, Any]], now: datetime) -> None:
    output.table(
        [
            Column("NAME"), Column("STATE"), Column("THROWN"), Column("BY"), Column("REASON", folds=True),
            Column("LIFTED"), Column("BY"), Column("GRANT"), Column("REASON", folds=True),
        ],
        [
            (
                thrown.name, thrown.state.value, output.age(thrown.created_at, now), thrown.thrown_by,
                values[i]["reason"] or "", output.age(thrown.updated_at, now) if values[i]["lifted_by"] else "",
                values[i]["lifted_by"] or "", thrown.grant_id or "", values[i]["lifted_reason"] or "",
            )
            for i, thrown in enumerate(found)
        ],
        none="No switch is on.",
    )  # fmt: skip
