"""`holdfast migrate`: upgrades a ledger to this version of Holdfast.

Invariants: it writes only what is missing or differs.
"""

from typing import Annotated, Any

from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.core.errors import EnforcementDriftError, InputError, SchemaVersionError
from holdfast.store import Store, reinstall
from holdfast.store import migrations as schema_steps


@command(Location.unopened)
def migrate(
    location: Location,
    *,
    print_sql: Annotated[bool, option("--print-sql", help="Print the SQL; change nothing.")] = False,
    new_epoch: Annotated[
        bool,
        option(
            "--new-epoch", help="Start a new epoch; needed after a PostgreSQL dump was loaded into another cluster."
        ),
    ] = False,
) -> Answer:
    """Upgrade a ledger to this version of Holdfast.

    One transaction applies missing migrations and rewrites machines and triggers that differ. A ledger that is up to
    date is not changed.
    """
    if print_sql and new_epoch:
        raise InputError("--print-sql and --new-epoch exclude each other.", next_step="Remove one of the two options.")
    with location.connect() as store:
        if new_epoch:
            epoch = reinstall.begin_epoch(store)
            return Answer({"epoch": epoch}, f"Epoch {epoch} started.")
        if print_sql:
            return _plan(store)
        applied, rewritten = _upgrade(store)
    return Answer({"applied": applied, "rewritten": rewritten}, _summary(applied, rewritten))


def _upgrade(store: Store[Any]) -> tuple[list[str], list[str]]:
    """Upgrade the ledger; return the applied migrations and the names of rewritten machines and triggers."""
    try:
        schema_steps.verify(store)
    except EnforcementDriftError as drift:
        differing = drift.context["differs"]
    except SchemaVersionError:
        differing = []  # a newer schema is refused below, by migrate
    else:
        return [], []
    applied = schema_steps.migrate(store)
    schema_steps.verify(store)
    steps = [_name(step) for step in schema_steps.migrations(store.dialect) if step.name in applied]
    return steps, list(differing) if isinstance(differing, list) else []


def _name(step: schema_steps.Migration) -> str:
    return f"{step.number:04d}_{step.name}"


def _summary(applied: list[str], rewritten: list[str]) -> str:
    if applied:
        return f"Applied {', '.join(applied)}."
    if rewritten:
        return f"Rewrote {', '.join(rewritten)}."
    return "Up to date."


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
