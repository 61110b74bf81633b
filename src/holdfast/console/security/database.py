"""The console's own file: accounts, tokens and sessions, in SQLite, beside the ledger and never inside it.

Invariants: only its owner can read the file (mode 0600); passwords, tokens and session ids are stored as hashes; every
change is one transaction.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from holdfast.core.errors import InputError, StoreError

SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE accounts (
  name TEXT PRIMARY KEY, roles TEXT NOT NULL, password TEXT NOT NULL, private_key TEXT, public_key TEXT,
  created_at TEXT NOT NULL, changed_at TEXT NOT NULL, disabled_at TEXT
) STRICT;
CREATE TABLE tokens (
  name TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, owner TEXT NOT NULL REFERENCES accounts (name),
  role TEXT NOT NULL, queues TEXT NOT NULL, operations TEXT NOT NULL,
  created_at TEXT NOT NULL, expires_at TEXT, revoked_at TEXT
) STRICT;
CREATE TABLE sessions (
  digest TEXT PRIMARY KEY, account TEXT NOT NULL REFERENCES accounts (name), csrf_token TEXT NOT NULL,
  created_at TEXT NOT NULL, seen_at TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_of ON sessions (account);
"""


class ConsoleDatabase:
    """The file, opened once in a process; its connection is used by one thread at a time."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        if not create and not path.exists():
            raise InputError(
                f"There is no file of accounts at {path}.",
                next_step="Add an account: `holdfast console users add NAME --role operator`.",
                context={"path": str(path)},
            )
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        try:
            # Created before SQLite opens it: no other user can read it at any time.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            path.chmod(0o600)
            self._migrate()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"The file of accounts cannot be opened: {error}.",
                next_step="Check that the file and its directory belong to you and are writable.",
                context={"path": str(path)},
            ) from None

    def _migrate(self) -> None:
        with self.transaction() as connection:
            [[version]] = connection.execute("PRAGMA user_version")
            if version == 0:
                for statement in SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif version != SCHEMA_VERSION:
                raise StoreError(
                    f"The file of accounts has version {version}; this Holdfast reads version {SCHEMA_VERSION}.",
                    next_step="Use the version of Holdfast that wrote it, or another file.",
                    context={"path": str(self.path)},
                )

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection inside a transaction that commits at the end of the block."""
        with self._lock:
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def read(self, statement: str, parameters: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        with self._lock:
            return self._opened().execute(statement, parameters).fetchall()

    def close(self) -> None:
        """Close the file; it opens again when it is used again, as a ledger does."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(self.path, timeout=10, check_same_thread=False, isolation_level=None)
            self._connection.execute("PRAGMA foreign_keys = ON")
        return self._connection


def now() -> datetime:
    return datetime.now(UTC)
