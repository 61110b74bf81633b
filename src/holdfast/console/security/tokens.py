"""Tokens of programs: random, stored as SHA-256, limited to a role and optionally to queues, operations and a time.

Invariants: a token is printed once, when it is made; a token belongs to an account and stops working with it; no token
approves.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from holdfast.console.security.accounts import require_name
from holdfast.console.security.callers import Caller, CallerKind, Role
from holdfast.console.security.database import ConsoleDatabase, now
from holdfast.core.errors import InputError, RecordNotFoundError
from holdfast.core.records import time_from, time_text

PREFIX = "hf_"
TOKEN_ROLES = (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR)
_COLUMNS = "name, owner, role, queues, operations, created_at, expires_at, revoked_at"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as the console shows it: everything but its secret."""

    name: str
    owner: str
    role: Role
    queues: tuple[str, ...]
    operations: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class Tokens:
    """The tokens of one console."""

    def __init__(self, database: ConsoleDatabase) -> None:
        self._database = database

    def all(self) -> list[Token]:
        return [_token(row) for row in self._database.read(f"SELECT {_COLUMNS} FROM tokens ORDER BY name")]  # noqa: S608 - a constant

    def get(self, name: str) -> Token | None:
        rows = self._database.read(f"SELECT {_COLUMNS} FROM tokens WHERE name = ?", (name,))  # noqa: S608 - a constant
        return _token(rows[0]) if rows else None

    def add(
        self,
        name: str,
        *,
        owner: str,
        role: Role,
        queues: Iterable[str] = (),
        operations: Iterable[str] = (),
        lasts: timedelta | None = None,
    ) -> str:
        """Add a token and return its secret, which is not stored; raise InputError if the name or role is not valid."""
        require_name(name)
        if role not in TOKEN_ROLES:
            raise InputError(
                f"A token cannot have the role {role}: only a person approves.",
                next_step=f"Give one of: {', '.join(TOKEN_ROLES)}.",
                context={"field": "role"},
            )
        secret = PREFIX + secrets.token_urlsafe(32)
        lists = [msgspec.json.encode(sorted(set(words))).decode() for words in (queues, operations)]
        ends = None if lasts is None else time_text(now() + lasts)
        try:
            with self._database.transaction() as connection:
                if not connection.execute(
                    "SELECT 1 FROM accounts WHERE name = ? AND disabled_at IS NULL", (owner,)
                ).fetchall():
                    raise RecordNotFoundError(
                        f"There is no account {owner!r} that can own the token.",
                        next_step="List the accounts: `holdfast console users list`.",
                        context={"account": owner},
                    )
                connection.execute(
                    "INSERT INTO tokens (name, digest, owner, role, queues, operations, created_at, expires_at)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (name, digest_of(secret), owner, role.value, *lists, time_text(now()), ends),
                )
        except sqlite3.IntegrityError:
            raise InputError(
                f"There is already a token {name}.", next_step="Choose another name.", context={"token": name}
            ) from None
        return secret

    def revoke(self, name: str) -> Token:
        """Revoke a token and return it; a revoked one stays revoked."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE tokens SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL", (time_text(now()), name)
            )
        found = self.get(name)
        if found is None:
            raise RecordNotFoundError(
                f"There is no token {name!r}.",
                next_step="List the tokens: `holdfast console tokens list`.",
                context={"token": name},
            )
        return found

    def caller(self, secret: str) -> Caller | None:
        """Return the caller of a secret; None if it is unknown, revoked, expired, or its owner is disabled."""
        rows = self._database.read(
            "SELECT t.name, t.role, t.queues, t.operations, t.expires_at FROM tokens t"
            " JOIN accounts a ON a.name = t.owner AND a.disabled_at IS NULL"
            " WHERE t.digest = ? AND t.revoked_at IS NULL",
            (digest_of(secret),),
        )
        if not rows:
            return None
        name, role, queues, operations, expires_at = rows[0]
        if expires_at is not None and time_from(str(expires_at)) <= now():
            return None
        return Caller(
            name=str(name),
            kind=CallerKind.TOKEN,
            roles=frozenset({Role(str(role))}),
            queues=frozenset(_words(queues)),
            operations=frozenset(_words(operations)),
        )


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a secret. It is random and long, so that it needs no salt."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _words(text: object) -> tuple[str, ...]:
    return msgspec.json.decode(str(text), type=tuple[str, ...])


def _token(row: tuple[object, ...]) -> Token:
    name, owner, role, queues, operations, created_at, expires_at, revoked_at = row
    return Token(
        name=str(name),
        owner=str(owner),
        role=Role(str(role)),
        queues=_words(queues),
        operations=_words(operations),
        created_at=time_from(str(created_at)),
        expires_at=None if expires_at is None else time_from(str(expires_at)),
        revoked_at=None if revoked_at is None else time_from(str(revoked_at)),
    )
