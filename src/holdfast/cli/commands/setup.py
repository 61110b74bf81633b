"""`holdfast init` and `migrate`: make a ledger, and bring it to this version.

Invariants: `init` on a ledger changes nothing; a new SQLite ledger appears under its name whole or not at all, also
when two processes make it at once; `migrate` writes only where something is missing or differs.
"""

from enum import StrEnum
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.options import Db, Json, Schema, ledger_url
from holdfast.core.errors import (
    EnforcementDriftError,
    FileThereError,
    InputError,
    NotALedgerError,
    RefusedError,
    SchemaVersionError,
)
from holdfast.store import Store, connect, open_store
from holdfast.store import migrations as schema_steps


class Environment(StrEnum):
    """What a ledger is for."""

    DEV = "dev"
    STAGE = "stage"
    PROD = "prod"


# ---------------------------------------------------------------------------------------------------------------------
# init


def init(
    *,
    env: Annotated[
        Environment | None, typer.Option("--env", help="What the ledger is for; written once (dev).")
    ] = None,
    governed: Annotated[bool, typer.Option("--governed", help="Let the registry govern its operations.")] = False,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Make a ledger, or say that there is one.

    On a ledger that exists nothing is changed; another --env than its own is refused.
    """
    url = ledger_url(db, schema)
    created = False
    try:
        store = open_store(url, schema=schema or "public")
    except NotALedgerError:
        created, store = _create(url, schema or "public", str(env or Environment.DEV), governed=governed)
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
    output.answer(value, lambda: output.line(f"{what} {kind}"), as_json=as_json)


def _refusal(message: str, **context: object) -> RefusedError:
    next_step = "What a ledger is for is written once: make another ledger under another name."
    return RefusedError(message, next_step=next_step, context=context)


def _create(url: str, schema: str, environment: str, *, governed: bool) -> tuple[bool, Store[Any]]:
    """Make the ledger; the answer's first part is False if another process was faster."""
    place = connect(url, schema=schema, create=True)
    if place.exists:  # one transaction makes the ledger in it
        with place:
            applied = schema_steps.migrate(place, environment=environment, governed=governed)
        return bool(applied), open_store(url, schema=schema)
    try:
        with place.drafted() as draft:
            schema_steps.migrate(draft, environment=environment, governed=governed)
    except FileThereError:
        return False, open_store(url)
    return True, open_store(url)


# ---------------------------------------------------------------------------------------------------------------------
# migrate


def migrate(
    *,
    print_sql: Annotated[bool, typer.Option("--print-sql", help="Print what would run, and run nothing.")] = False,
    new_epoch: Annotated[
        bool, typer.Option("--new-epoch", help="Begin a new epoch: for a dump that was loaded into another cluster.")
    ] = False,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Bring a ledger to this version of Holdfast.

    Missing migrations are applied, and machines and triggers that differ are written anew, in one transaction. A ledger
    that is up to date is left alone.
    """
    if print_sql and new_epoch:
        raise InputError("--print-sql and --new-epoch do not go together", next_step="Give one of them.")
    with connect(ledger_url(db, schema), schema=schema or "public") as store:
        if new_epoch:
            epoch = schema_steps.begin_epoch(store)
            output.answer({"epoch": epoch}, lambda: output.line(f"epoch {epoch} has begun"), as_json=as_json)
            return
        if print_sql:
            _print_plan(store, as_json=as_json)
            return
        applied, rewritten = _brought_up(store)
    value = {"applied": applied, "rewritten": rewritten}
    output.answer(value, lambda: output.line(_done(applied, rewritten)), as_json=as_json)


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


def _print_plan(store: Store[Any], *, as_json: bool) -> None:
    pending: list[str] = []
    statements: list[str] = []
    try:
        schema_steps.verify(store)
    except (EnforcementDriftError, SchemaVersionError):
        with store.reading() as reading:
            todo = schema_steps.plan(store, reading.connection)
        pending, statements = [_name(step) for step in todo.pending], list(todo.statements)
    text = ["BEGIN;", *(f"{statement};" for statement in statements), "COMMIT;"] if statements else ["-- up to date"]
    value = {"pending": pending, "statements": statements}
    output.answer(value, lambda: output.line("\n".join(text)), as_json=as_json)
