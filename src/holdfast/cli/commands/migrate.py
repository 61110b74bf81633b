"""`holdfast migrate`: bring a ledger to this version of Holdfast.

Invariants: it writes only where something is missing or differs.
"""

from typing import Annotated, Any

import typer

from holdfast.cli.command import Answer, Location, command
from holdfast.core.errors import EnforcementDriftError, InputError, SchemaVersionError
from holdfast.store import Store
from holdfast.store import migrations as schema_steps


@command(Location.unopened)
def migrate(
    location: Location,
    *,
    print_sql: Annotated[bool, typer.Option("--print-sql", help="Print what would run, and run nothing.")] = False,
    new_epoch: Annotated[
        bool, typer.Option("--new-epoch", help="Begin a new epoch: for a dump that was loaded into another cluster.")
    ] = False,
) -> Answer:
    """Bring a ledger to this version of Holdfast.

    Missing migrations are applied, and machines and triggers that differ are written anew, in one transaction. A ledger
    that is up to date is left alone.
    """
    if print_sql and new_epoch:
        raise InputError("--print-sql and --new-epoch do not go together", next_step="Give one of them.")
    with location.connect() as store:
        if new_epoch:
            epoch = schema_steps.begin_epoch(store)
            return Answer({"epoch": epoch}, f"epoch {epoch} has begun")
        if print_sql:
            return _plan(store)
        applied, rewritten = _brought_up(store)
    return Answer({"applied": applied, "rewritten": rewritten}, _done(applied, rewritten))


def _brought_up(store: Store[Any]) -> tuple[list[str], list[str]]:
    """Return the migrations that were applied and what else differed."""
    try:
        schema_steps.verify(store)
    except EnforcementDriftError as drift:
        differing = drift.context["differs"]
    except SchemaVersionError:
        differing = []  # a newer schema is refused again, by migrate itself
    else:
        return [], []
    applied = schema_steps.migrate(store)
    schema_steps.verify(store)
    steps = [_name(step) for step in schema_steps.migrations(store.dialect) if step.name in applied]
    return steps, list(differing) if isinstance(differing, list) else []


def _name(step: schema_steps.Migration) -> str:
    return f"{step.number:04d}_{step.name}"


def _done(applied: list[str], rewritten: list[str]) -> str:
    if applied:
        return f"applied {', '.join(applied)}"
    if rewritten:
        return f"written anew: {', '.join(rewritten)}"
    return "up to date"


def _plan(store: Store[Any]) -> Answer:
    pending: list[str] = []
    statements: list[str] = []
    try:
        schema_steps.verify(store)
    except (EnforcementDriftError, SchemaVersionError):
        with store.reading() as reading:
            todo = schema_steps.plan(store, reading.connection)
        pending, statements = [_name(step) for step in todo.pending], list(todo.statements)
    text = ["BEGIN;", *(f"{statement};" for statement in statements), "COMMIT;"] if statements else ["-- up to date"]
    return Answer({"pending": pending, "statements": statements}, "\n".join(text))
