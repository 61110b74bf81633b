"""`holdfast init` and `environment`: create a ledger, and raise its environment.

Invariants: `init` never changes an existing ledger; a new SQLite file appears only when it is complete, also when two
processes create it at the same time.
"""

from enum import StrEnum
from typing import Annotated, Any

from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument, option
from holdfast.cli.options import RequiredReason, actor
from holdfast.core.errors import FileThereError, NotALedgerError, RefusedError
from holdfast.store import Store, connect
from holdfast.store import migrations as schema_steps


class Environment(StrEnum):
    """The environment of a ledger."""

    DEV = "dev"
    STAGE = "stage"
    PROD = "prod"


@command(Location.unopened)
def init(
    location: Location,
    *,
    env: Annotated[
        Environment | None,
        option("--env", help="Environment of the ledger; it can only be raised later (default: dev)."),
    ] = None,
    governed: Annotated[
        bool, option("--governed", help="Accept only operations that are active in the registry.")
    ] = False,
) -> Answer:
    """Create a ledger, or report the one that exists.

    An existing ledger is not changed; it is an error if it has another environment than --env.
    """
    created = False
    try:
        store = location.open()
    except NotALedgerError:
        created, store = _create(location, str(env or Environment.DEV), governed=governed)
    with store, store.reading() as reading:
        settings = reading.settings.read()
    environment, is_governed = settings["environment"], settings["governed"] == "yes"
    if env is not None and env != environment:
        raise _refusal(
            f"The environment of this ledger is {environment}, not {env}.", environment=environment, requested=str(env)
        )
    if governed and not is_governed:
        raise _refusal("This ledger was created without --governed.", governed=False, requested=True)
    value = {"created": created, "environment": environment, "governed": is_governed, "database": store.dialect}
    what = "Created" if created else "This is already"
    kind = f"a {'governed ' if is_governed else ''}{environment} ledger ({store.dialect})"
    return Answer(value, f"{what} {kind}.")


def _refusal(message: str, **context: object) -> RefusedError:
    next_step = "Raise its environment: `holdfast environment --help`. Or create another ledger, under another name."
    return RefusedError(message, next_step=next_step, context=context)


def _create(location: Location, environment: str, *, governed: bool) -> tuple[bool, Store[Any]]:
    """Create the ledger; the first value is False if there is one already."""
    place = connect(location.url, schema=location.schema, create=True)
    if place.exists:  # one transaction creates the ledger in it
        with place:
            schema_steps.is_empty(place)  # refuses what is no database before a file for locks is made beside it
            applied = schema_steps.migrate(place, environment=environment, governed=governed, only_empty=True)
        return bool(applied), location.open()
    try:
        with place.upkeep.drafted() as draft:
            schema_steps.migrate(draft, environment=environment, governed=governed)
    except FileThereError:
        return False, location.open()
    return True, location.open()


@command(Location.open)
def environment(
    store: Store[Any],
    *,
    to: Annotated[Environment, argument(metavar="ENV", help="New environment: stage or prod.")],
    reason: RequiredReason,
) -> Answer:
    """Raise the environment of a ledger.

    From dev to stage or prod, or from stage to prod.

    It is never lowered, and not raised while a grant is active. The journal has who raised it and why.
    """
    from holdfast.governance.environment import raise_environment  # noqa: PLC0415 - `init` needs none of it

    before = raise_environment(store, to.value, actor=actor(), reason=reason)
    text = f"The ledger is {to.value}." if before == to.value else f"The ledger was {before}; it is {to.value} now."
    return Answer({"before": before, "environment": to.value}, text)
