"""`holdfast init`: make a ledger.

Invariants: `init` on a ledger changes nothing; a new SQLite ledger appears under its name whole or not at all, also
when two processes make it at once.
"""

from enum import StrEnum
from typing import Annotated, Any

import typer

from holdfast.cli.command import Answer, Location, command
from holdfast.core.errors import (
    FileThereError,
    NotALedgerError,
    RefusedError,
)
from holdfast.store import Store, connect
from holdfast.store import migrations as schema_steps


class Environment(StrEnum):
    """What a ledger is for."""

    DEV = "dev"
    STAGE = "stage"
    PROD = "prod"


@command(Location.unopened)
def init(
    location: Location,
    *,
    env: Annotated[
        Environment | None, typer.Option("--env", help="What the ledger is for; written once (dev).")
    ] = None,
    governed: Annotated[bool, typer.Option("--governed", help="Let the registry govern its operations.")] = False,
) -> Answer:
    """Make a ledger, or say that there is one.

    On a ledger that exists nothing is changed; another --env than its own is refused.
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
        raise _refusal(f"this is a {environment} ledger, not a {env} one", environment=environment, asked=str(env))
    if governed and not is_governed:
        raise _refusal("this ledger was made without --governed", governed=False, asked=True)
    value = {"created": created, "environment": environment, "governed": is_governed, "database": store.dialect}
    what = "made" if created else "there is already"
    kind = f"a {'governed ' if is_governed else ''}{environment} ledger ({store.dialect})"
    return Answer(value, f"{what} {kind}")


def _refusal(message: str, **context: object) -> RefusedError:
    next_step = "What a ledger is for is written once: make another ledger under another name."
    return RefusedError(message, next_step=next_step, context=context)


def _create(location: Location, environment: str, *, governed: bool) -> tuple[bool, Store[Any]]:
    """Make the ledger; the answer's first part is False if another process was faster."""
    place = connect(location.url, schema=location.schema, create=True)
    if place.exists:  # one transaction makes the ledger in it
        with place:
            applied = schema_steps.migrate(place, environment=environment, governed=governed)
        return bool(applied), location.open()
    try:
        with place.drafted() as draft:
            schema_steps.migrate(draft, environment=environment, governed=governed)
    except FileThereError:
        return False, location.open()
    return True, location.open()
