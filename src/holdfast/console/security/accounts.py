"""Accounts of people: their names, roles, passwords and signing keys.

Invariants: a name is compared exactly; every change of an account ends its sessions, in the same transaction; the
private key of an approver can only be read with the password; a disabled account cannot log in, and its tokens do not
work.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterable
from datetime import datetime

import msgspec

from holdfast.console.security import passwords
from holdfast.console.security.callers import Role
from holdfast.console.security.database import ConsoleDatabase, now
from holdfast.core.errors import InputError, RecordNotFoundError
from holdfast.core.feature_errors import extra
from holdfast.core.records import time_from, time_text

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
ACCOUNT_ROLES = (Role.VIEWER, Role.OPERATOR, Role.APPROVER)
_COLUMNS = "name, roles, public_key, created_at, changed_at, disabled_at"
_hashing = threading.BoundedSemaphore(2)  # each needs 32 MiB: many logins at once wait


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account as the console shows it."""

    name: str
    roles: tuple[Role, ...]
    public_key: str | None
    created_at: datetime
    changed_at: datetime
    disabled_at: datetime | None

    @property
    def enabled(self) -> bool:
        return self.disabled_at is None


class Accounts:
    """The accounts of one console."""

    def __init__(self, database: ConsoleDatabase) -> None:
        self._database = database

    def all(self) -> list[Account]:
        return [_account(row) for row in self._database.read(f"SELECT {_COLUMNS} FROM accounts ORDER BY name")]  # noqa: S608 - a constant

    def get(self, name: str) -> Account | None:
        rows = self._database.read(f"SELECT {_COLUMNS} FROM accounts WHERE name = ?", (name,))  # noqa: S608 - a constant
        return _account(rows[0]) if rows else None

    def add(self, name: str, password: str, roles: Iterable[Role]) -> Account:
        """Add an account and return it; raise InputError for a name that is taken or not valid, or a short password."""
        require_name(name)
        words = roles_text(roles)
        private_key, public_key = _new_key(password) if Role.APPROVER in words.split(",") else (None, None)
        at = time_text(now())
        try:
            with self._database.transaction() as connection:
                connection.execute(
                    "INSERT INTO accounts (name, roles, password, private_key, public_key, created_at, changed_at)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (name, words, passwords.hashed(password), private_key, public_key, at, at),
                )
        except sqlite3.IntegrityError:
            raise InputError(
                f"There is already an account {name}.",
                next_step=f"Choose another name, or change its password: `holdfast console users passwd {name}`.",
                context={"account": name},
            ) from None
        return self._existing(name)

    def set_password(self, name: str, password: str) -> Account:
        """Replace a password, end the sessions, and return the account. An approver gets a new signing key."""
        account = self._existing(name)
        private_key, public_key = _new_key(password) if Role.APPROVER in account.roles else (None, None)
        self._change(name, password=passwords.hashed(password), private_key=private_key, public_key=public_key)
        return self._existing(name)

    def disable(self, name: str) -> Account:
        """Disable an account, end its sessions, and return it."""
        self._existing(name)
        self._change(name, disabled_at=time_text(now()))
        return self._existing(name)

    def check_password(self, name: str, password: str) -> Account | None:
        """Return the account of a name and a password; None if there is none, or it is disabled."""
        rows = self._database.read("SELECT password FROM accounts WHERE name = ?", (name,))
        stored = str(rows[0][0]) if rows else passwords.NO_ACCOUNT
        with _hashing:
            right = passwords.matches(password, stored)
        account = self.get(name) if rows and right else None
        return account if account is not None and account.enabled else None

    def signature(self, name: str, password: str, text: bytes) -> str:
        """Return the signature of a text with the key of an account; the password was checked before."""
        [[sealed]] = self._database.read("SELECT private_key FROM accounts WHERE name = ?", (name,))
        if sealed is None:
            raise _no_key(name)
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 - the same

        key = load_pem_private_key(str(sealed).encode(), password.encode())
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(f"The key of {name} is not an Ed25519 key.", context={"account": name})
        return key.sign(text).hex()

    def public_key_pem(self, name: str) -> bytes:
        """Return the public key of an account as a PEM file holds it; raise InputError if it has none."""
        account = self._existing(name)
        if account.public_key is None:
            raise _no_key(name)
        from cryptography.hazmat.primitives import serialization as s  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415 - the same

        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(account.public_key))
        return key.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)

    def _existing(self, name: str) -> Account:
        account = self.get(name)
        if account is None:
            raise RecordNotFoundError(
                f"There is no account {name!r}.",
                next_step="List the accounts: `holdfast console users list`.",
                context={"account": name},
            )
        return account

    def _change(self, name: str, **values: str | None) -> None:
        columns = ", ".join(f"{column} = ?" for column in (*values, "changed_at"))
        with self._database.transaction() as connection:
            connection.execute(
                f"UPDATE accounts SET {columns} WHERE name = ?",  # noqa: S608 - columns are named in this module
                (*values.values(), time_text(now()), name),
            )
            connection.execute("DELETE FROM sessions WHERE account = ?", (name,))


def require_name(name: str) -> None:
    """Raise InputError unless this can be the name of an account or a token."""
    if not NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not a valid name.",
            next_step="Use letters, digits and . _ @ -, at most 64 characters, and begin with a letter or a digit.",
            context={"field": "name"},
        )


def roles_text(roles: Iterable[Role]) -> str:
    """Return roles as the file stores them; raise InputError for none, or for one that an account cannot have."""
    given = frozenset(roles)
    if not given or not given <= set(ACCOUNT_ROLES):
        raise InputError(
            "An account has one or more of the roles viewer, operator and approver.",
            next_step="Give --role viewer, --role operator or --role approver.",
            context={"field": "role"},
        )
    return ",".join(role for role in ACCOUNT_ROLES if role in given)


def _no_key(name: str) -> InputError:
    return InputError(
        f"The account {name} has no signing key, because it is not an approver.",
        next_step="Add an account for it: `holdfast console users add NAME --role approver`.",
        context={"account": name},
    )


def _new_key(password: str) -> tuple[str | None, str | None]:
    """Return a new private key, sealed with a password, and its public key in hexadecimal digits."""
    with extra("signing"):
        from cryptography.hazmat.primitives import serialization as s  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - the same
    key = Ed25519PrivateKey.generate()
    sealed = key.private_bytes(
        s.Encoding.PEM, s.PrivateFormat.PKCS8, s.BestAvailableEncryption(password.encode() or b"-")
    )
    return sealed.decode(), key.public_key().public_bytes_raw().hex()


def _account(row: tuple[object, ...]) -> Account:
    name, roles, public_key, created_at, changed_at, disabled_at = row
    return Account(
        name=str(name),
        roles=tuple(Role(word) for word in str(roles).split(",")),
        public_key=None if public_key is None else str(public_key),
        created_at=time_from(str(created_at)),
        changed_at=time_from(str(changed_at)),
        disabled_at=None if disabled_at is None else time_from(str(disabled_at)),
    )
