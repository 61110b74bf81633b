"""The options that commands share, and how a command comes to its ledger.

Invariants: every command that opens a ledger does so here; nothing is written unless the ledger was verified; a word
given on the command line is text that both databases can hold.
"""

import os
import pwd
from contextlib import AbstractContextManager
from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.core.digest import PAYLOAD_BYTES_MAX
from holdfast.core.errors import BadUrlError, InputError
from holdfast.store import Store, open_store
from holdfast.store.requests import WORD_BYTES_MAX

ID_MAX = 2**63 - 1
PAYLOAD_MAX_VARIABLE = "HOLDFAST_PAYLOAD_MAX_BYTES"


def _word(value: str | None) -> str | None:
    """Refuse what is no name: nothing at all, bytes that are no text, or too much of it."""
    if value is None:
        return None
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise typer.BadParameter("it is not UTF-8 text") from None
    if not value.strip():
        raise typer.BadParameter("it is empty")
    if size > WORD_BYTES_MAX:
        raise typer.BadParameter(f"it has {size} bytes; the limit is {WORD_BYTES_MAX}")
    return value


def word(flag: str, help_text: str, *more_flags: str, metavar: str = "NAME") -> Any:
    """Return the option of a name: of a client, a key, a queue, an operation."""
    return typer.Option(flag, *more_flags, metavar=metavar, help=help_text, callback=_word, show_default=True)


def named_by(flag: str, ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    """Return the value of a flag that names the ledger; if it was typed, commands that are printed have it too."""
    source = ctx.get_parameter_source(param.name or "")
    if value is not None and source is not None and source.name == "COMMANDLINE":
        output.place().name(flag, value)
    return value


def db_named(ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    """Take --db."""
    return named_by("--db", ctx, param, value)


def _schema_named(ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    return named_by("--schema", ctx, param, _word(value))


Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        envvar="HOLDFAST_URL",
        show_envvar=True,
        metavar="URL",
        help="The ledger: a file, sqlite:///FILE, or postgresql://….",
        callback=db_named,
    ),
]
Schema = Annotated[
    str | None,
    typer.Option("--schema", metavar="NAME", help="Its schema, on PostgreSQL (public).", callback=_schema_named),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON; errors too.")]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="As it was then: 2030-01-31T12:00:00Z, a date, '2h ago' or -2h."),
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.")]
Operation = Annotated[str, typer.Argument(metavar="OPERATION", help="The kind of work.", callback=_word)]


def ledger_url(db: str | None, schema: str | None, *, flag: str = "--db", variable: str = "HOLDFAST_URL") -> str:
    """Return the URL that was named, or raise; `flag` and `variable` are what it could have been named by."""
    if not db:
        raise BadUrlError("no ledger was named", next_step=f"Give {flag} with a file or a URL, or set {variable}.")
    if schema and not db.startswith(("postgresql://", "postgres://")):
        raise InputError(
            "--schema is for PostgreSQL, and this ledger is a SQLite file", next_step="Leave --schema out."
        )
    return db


def opened(db: str | None, schema: str | None) -> AbstractContextManager[Store[Any]]:
    """Return the verified store of the ledger that was named."""
    return open_store(ledger_url(db, schema), schema=schema or "public")


def actor() -> str:
    """Return who gives this command: the user of the operating system."""
    uid = os.getuid()
    try:
        return f"cli:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"cli:{uid}"


def payload_bytes_max() -> int:
    """Return the limit of a payload's size, from the environment or the default."""
    text = os.environ.get(PAYLOAD_MAX_VARIABLE)
    if not text:
        return PAYLOAD_BYTES_MAX
    if not text.isdecimal() or not text.isascii() or int(text) < 1:
        raise InputError(
            f"{PAYLOAD_MAX_VARIABLE} is not a number of bytes",
            next_step=f"Set it to a whole number above 0, such as {PAYLOAD_BYTES_MAX}, or unset it.",
            context={"variable": PAYLOAD_MAX_VARIABLE},
        )
    return int(text)
