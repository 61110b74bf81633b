"""Options that several commands share, and the checks of their values.

Invariants: a name or text given on the command line can be stored by both databases; the URL of a ledger is checked
before anything is opened.
"""

import os
import pwd
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, Any

import click

from holdfast.cli import output
from holdfast.cli.declare import argument, option
from holdfast.core.errors import BadUrlError, InputError
from holdfast.store import Store, open_store
from holdfast.store.configuration import configuration, variable_of
from holdfast.store.requests import WORD_BYTES_MAX

ID_MAX = 2**63 - 1
REFUSED = 3  # the exit code of a guard that refuses


def _word(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Return the text, or raise BadParameter if it is empty, too long or not UTF-8."""
    if value is None:
        return None
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise click.BadParameter("The value is not UTF-8 text.") from None
    if not value.strip():
        raise click.BadParameter("The value is empty.")
    if size > WORD_BYTES_MAX:
        raise click.BadParameter(f"The value has {size} bytes; the limit is {WORD_BYTES_MAX} bytes.")
    return value


def word(flag: str, help_text: str, *more_flags: str, metavar: str = "NAME") -> Any:
    """Return an option that takes a name or a short text, such as a client, a key or a queue."""
    return option(flag, *more_flags, metavar=metavar, help=help_text, callback=_word)


def named_by(flag: str, ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the value of a flag that locates the ledger; if it was typed, printed commands repeat it."""
    source = ctx.get_parameter_source(param.name or "")
    if value is not None and source is not None and source.name == "COMMANDLINE":
        output.ledger_flags().name(flag, value)
    return value


db_named = partial(named_by, "--db")


def _schema_named(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return named_by("--schema", ctx, param, _word(ctx, param, value))


Db = Annotated[
    str | None,
    option(
        "--db",
        metavar="URL",
        help="Ledger: a file path, sqlite:///FILE or postgresql://… (default: HOLDFAST_URL, or url of holdfast.toml).",
        callback=db_named,
    ),
]
Schema = Annotated[
    str | None,
    option(
        "--schema", metavar="NAME", help="PostgreSQL schema of the ledger (default: public).", callback=_schema_named
    ),
]
Json = Annotated[bool, option("--json", help="Print the answer as JSON, and an error too.")]
At = Annotated[
    str | None,
    option("--at", metavar="TIME", help="Show the state at this time: 2030-01-31T12:00:00Z, a date, '2h ago' or -2h."),
]
REASON_HELP = "Reason; stored in the journal."
OPERATOR_HELP = "Name of the person who acts (default: the current user)."
GRANT_HELP = "Id of the grant that permits this (default: a grant that fits)."
Reason = Annotated[str | None, option("--reason", metavar="TEXT", help=REASON_HELP)]
RequiredReason = Annotated[str, option("--reason", metavar="TEXT", help=REASON_HELP)]
ReasonWord = Annotated[str, word("--reason", REASON_HELP, metavar="TEXT")]
Operator = Annotated[str | None, option("--operator", "--as", metavar="NAME", help=OPERATOR_HELP)]
OperatorWord = Annotated[str | None, word("--operator", OPERATOR_HELP)]
As = Annotated[str | None, word("--as", OPERATOR_HELP, "--operator")]
GrantId = Annotated[int | None, option("--grant", min=1, max=ID_MAX, metavar="ID", help=GRANT_HELP)]
JobsBefore = Annotated[
    int | None,
    option("--before", min=1, max=ID_MAX, metavar="ID", help="List only jobs with a smaller id, to continue a page."),
]
Operation = Annotated[str, argument(metavar="OPERATION", help="Name of the operation.", callback=_word)]


def ledger_url(db: str | None, schema: str | None, *, flag: str = "--db", variable: str = "HOLDFAST_URL") -> str:
    """Return the URL of the ledger, or raise; `flag` and `variable` are the two ways to give it."""
    db = db or (configuration().url if variable == variable_of("url") else None)
    if not db:
        raise BadUrlError("No ledger is given.", next_step=f"Give {flag} with a file or a URL, or set {variable}.")
    if schema and not db.startswith(("postgresql://", "postgres://")):
        raise InputError(
            "--schema applies to PostgreSQL only; this ledger is a SQLite file.", next_step="Remove --schema."
        )
    return db


def opened(db: str | None, schema: str | None) -> AbstractContextManager[Store[Any]]:
    """Return the store of the ledger, after verifying its schema and its triggers."""
    return open_store(ledger_url(db, schema), schema=schema or configuration().schema)


def actor() -> str:
    """Return the actor for the journal: the user of the operating system."""
    uid = os.getuid()
    try:
        return f"cli:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"cli:{uid}"
