"""`holdfast console`: serves the console and the HTTP API, and manages its accounts and tokens.

Invariants: without accounts it starts only for a dev ledger on loopback; a password is read from the terminal or from
standard input, never from the command line; the secret of a token is printed once.
"""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import click

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.declare import argument, option
from holdfast.cli.options import word
from holdfast.cli.text import Column
from holdfast.console.options import console_options
from holdfast.console.security.accounts import Account, Accounts
from holdfast.console.security.callers import Role
from holdfast.console.security.database import ConsoleDatabase
from holdfast.console.security.passwords import LENGTH_MAX
from holdfast.console.security.tokens import TOKEN_ROLES, Tokens
from holdfast.console.settings import ACCOUNTS_FILE, PORT, ConsoleSettings, is_loopback, local_origins
from holdfast.core.errors import InputError
from holdfast.core.feature_errors import extra
from holdfast.explain.times import duration
from holdfast.explain.values import row_value
from holdfast.store.files import new_file

console = group("Serve the console and the HTTP API; manage accounts.", "console")
users = group("Add, list and disable accounts; set passwords; export keys.", "console")
tokens = group("Add, list and revoke tokens of programs.", "console")
console.add_command(users, "users")
console.add_command(tokens, "tokens")

AccountsFile = Annotated[
    Path,
    option(
        "--accounts",
        envvar="HOLDFAST_CONSOLE_ACCOUNTS",
        show_envvar=True,
        metavar="FILE",
        help="File of accounts, tokens and sessions.",
    ),
]
Name = Annotated[str, argument(metavar="NAME", help="Name of the account.")]
TokenName = Annotated[str, argument(metavar="NAME", help="Name of the token.")]
PasswordStdin = Annotated[
    bool, option("--password-stdin", help="Read the password from the first line of standard input.")
]
DEFAULT_FILE = Path(ACCOUNTS_FILE)


@console.alone()
@command(Location.unopened)
def serve(
    location: Location,
    *,
    ctx: click.Context,
    host: Annotated[str | None, word("--host", "Address to listen on (127.0.0.1).", metavar="ADDRESS")] = None,
    port: Annotated[
        int | None, option("--port", min=1, max=65535, metavar="N", help=f"Port to listen on ({PORT}).")
    ] = None,
    read_only: Annotated[bool, option("--read-only", help="Refuse everything that changes something.")] = False,
    base_path: Annotated[
        str | None, option("--base-path", metavar="PATH", help="Path under which a proxy serves it, such as /ops.")
    ] = None,
    origin: Annotated[
        list[str] | None,
        option(
            "--origin", metavar="URL", help="Address that browsers use, such as https://ops.example.org; repeatable."
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        option("--proxy", metavar="ADDRESS", help="Proxy whose X-Forwarded-For is believed; repeatable."),
    ] = None,
    accounts: AccountsFile = DEFAULT_FILE,
    as_json: bool,
) -> Answer | None:
    """Serve the console and the HTTP API until it is stopped.

    Without accounts it starts only for a dev ledger on loopback. The options can be in the table [console] of
    holdfast.toml. Example: holdfast console --db work.db --read-only
    """
    if ctx.invoked_subcommand is not None:
        return None
    options = console_options({
        "host": host, "port": port, "read_only": read_only or None, "base_path": base_path, "origin": origin or None,
        "proxy": proxy or None,
    })  # fmt: skip
    loopback = is_loopback(options.host)
    if not loopback and not options.origin:
        raise InputError(
            f"--host {options.host} needs --origin.",
            next_step="Add --origin with the address that browsers use, such as https://ops.example.org.",
            context={"flag": "--origin"},
        )
    settings = ConsoleSettings(
        accounts=accounts,
        origins=options.origin or local_origins(options.host, options.port),
        base_path=options.base_path,
        read_only=options.read_only,
        open_to_all=loopback and not options.origin and not accounts.exists(),
        loopback=loopback and not options.origin,
        session_idle_s=options.session_idle_s,
    )
    create_app, listening, run = _application()
    with location.ledger() as ledger, listening(options.host, options.port) as socket:
        app = create_app(ledger, settings)
        how = "without accounts: this is a dev ledger" if settings.open_to_all else f"accounts in {accounts}"
        url = f"{settings.origins[0]}{options.base_path}/"
        known = None if settings.open_to_all else str(accounts)
        value = {"url": url, "accounts": known, "read_only": options.read_only}
        output.answer(value, lambda: output.line(f"Console at {url} ({how}). Stop it with Ctrl-C."), as_json=as_json)
        sys.stdout.flush()
        run(app, [socket], proxies=options.proxy)
    return None


def _application() -> tuple[Any, Any, Any]:
    with extra("console"):
        from holdfast.console.app import create_app  # noqa: PLC0415 - an extra
        from holdfast.console.server import listening  # noqa: PLC0415 - the same
        from holdfast.console.server import serve as run  # noqa: PLC0415 - the same
    return create_app, listening, run


# ---------------------------------------------------------------------------------------------------------------------
# users


@users.subcommand()
@command()
def add(
    *,
    name: Name,
    role: Annotated[list[Role], option("--role", metavar="ROLE", help="viewer, operator or approver; repeatable.")],
    password_stdin: PasswordStdin = False,
    accounts: AccountsFile = DEFAULT_FILE,
) -> Answer:
    """Add an account. Everyone may look; an operator acts on jobs, an approver approves grants of others.

    An approver gets a signing key, sealed with the password. In a prod ledger, register its public key.
    Example: holdfast console users add ann --role operator
    """
    made = Accounts(ConsoleDatabase(accounts, create=True)).add(name, _password(stdin=password_stdin), role)
    return Answer(row_value(made), f"Account {name} added: {', '.join(made.roles)}.{_key_words(made)}")


@users.subcommand("list")
@command()
def list_users(*, accounts: AccountsFile = DEFAULT_FILE) -> Answer:
    """List the accounts."""
    found = Accounts(ConsoleDatabase(accounts)).all()

    def human() -> None:
        output.table(
            [Column("NAME"), Column("ROLES"), Column("STATE"), Column("CHANGED (UTC)"), Column("PUBLIC KEY")],
            [
                (
                    one.name,
                    ", ".join(one.roles),
                    "enabled" if one.enabled else "disabled",
                    output.instant(one.changed_at),
                    one.public_key or "",
                )
                for one in found
            ],
        )

    return Answer([row_value(one) for one in found], human)


@users.subcommand()
@command()
def disable(*, name: Name, accounts: AccountsFile = DEFAULT_FILE) -> Answer:
    """Disable an account: its sessions end, and its tokens stop working."""
    made = Accounts(ConsoleDatabase(accounts)).disable(name)
    return Answer(row_value(made), f"Account {name} disabled. Its sessions have ended; its tokens do not work.")


@users.subcommand()
@command()
def passwd(*, name: Name, password_stdin: PasswordStdin = False, accounts: AccountsFile = DEFAULT_FILE) -> Answer:
    """Set a new password and end the sessions. An approver gets a new signing key."""
    made = Accounts(ConsoleDatabase(accounts)).set_password(name, _password(stdin=password_stdin))
    return Answer(row_value(made), f"Password of {name} set. Its sessions have ended.{_key_words(made)}")


@users.subcommand()
@command()
def key(
    *,
    name: Name,
    out: Annotated[Path, argument(metavar="FILE", help="File to write; it must not exist.")],
    accounts: AccountsFile = DEFAULT_FILE,
) -> Answer:
    """Write the public key of an approver to a file, to register it in a prod ledger."""
    pem = Accounts(ConsoleDatabase(accounts)).public_key_pem(name)
    with new_file(out) as file:
        file.write(pem)
    step = f"holdfast grant approvers add console:{name} --public-key {shlex.quote(str(out))} --reason TEXT"
    first = "Add --bootstrap for the first approver of a ledger."
    return Answer({"name": name, "path": str(out), "next": step}, f"Wrote {out}. Register it: {step}\n{first}")


def _password(*, stdin: bool) -> str:
    if stdin:
        return sys.stdin.readline(LENGTH_MAX + 2).rstrip("\n")
    if not sys.stdin.isatty():
        raise InputError("There is no terminal to ask for the password.", next_step="Add --password-stdin.")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))


def _key_words(made: Account) -> str:
    if made.public_key is None:
        return ""
    return f" To approve in a prod ledger, register its key: holdfast console users key {made.name} {made.name}.pub"


# ---------------------------------------------------------------------------------------------------------------------
# tokens


@tokens.subcommand("add")
@command()
def add_token(
    *,
    name: TokenName,
    owner: Annotated[str, word("--owner", "Account that the token belongs to.")],
    role: Annotated[Role, option("--role", metavar="ROLE", help=f"One of: {', '.join(TOKEN_ROLES)}.")],
    queue: Annotated[
        list[str] | None, option("--queue", metavar="NAME", help="Only this queue; repeatable (default: all).")
    ] = None,
    operation: Annotated[
        list[str] | None,
        option("--operation", metavar="NAME", help="Only this operation; repeatable (default: all)."),
    ] = None,
    ttl: Annotated[str | None, word("--ttl", "Time until the token expires: 12h, 90d.", metavar="TIME")] = None,
    accounts: AccountsFile = DEFAULT_FILE,
) -> Answer:
    """Add a token for a program, and print its secret. The secret is not stored: keep it.

    Example: holdfast console tokens add shop --owner ann --role submitter --queue orders --ttl 90d
    """
    made = Tokens(ConsoleDatabase(accounts))
    lasts = duration(ttl, "--ttl") if ttl else None
    secret = made.add(name, owner=owner, role=role, queues=queue or (), operations=operation or (), lasts=lasts)
    found = made.get(name)
    value = {**row_value(found), "secret": secret} if found else {"secret": secret}
    return Answer(value, f"Token {name} added. Its secret, which is not shown again: {secret}")


@tokens.subcommand("list")
@command()
def list_tokens(*, accounts: AccountsFile = DEFAULT_FILE) -> Answer:
    """List the tokens, without their secrets."""
    found = Tokens(ConsoleDatabase(accounts)).all()

    def human() -> None:
        output.table(
            [
                Column("NAME"), Column("OWNER"), Column("ROLE"), Column("QUEUES", folds=True),
                Column("OPERATIONS", folds=True), Column("EXPIRES (UTC)"), Column("REVOKED (UTC)"),
            ],
            [
                (
                    one.name, one.owner, one.role.value, ", ".join(one.queues) or "all",
                    ", ".join(one.operations) or "all", output.instant(one.expires_at) if one.expires_at else "never",
                    output.instant(one.revoked_at) if one.revoked_at else "",
                )
                for one in found
            ],
        )  # fmt: skip

    return Answer([row_value(one) for one in found], human)


@tokens.subcommand()
@command()
def revoke(*, name: TokenName, accounts: AccountsFile = DEFAULT_FILE) -> Answer:
    """Revoke a token. It does not work from now on; this cannot be undone."""
    found = Tokens(ConsoleDatabase(accounts)).revoke(name)
    return Answer(row_value(found), f"Token {name} revoked.")
