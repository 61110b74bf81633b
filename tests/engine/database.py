"""The user's own view of the database that holds a ledger: plain sqlite3 or psycopg, no Holdfast.

Invariants: `run` is one committed statement; a connection from `connect` is the caller's, with nothing begun on it.
"""

from __future__ import annotations

import sqlite3
from typing import Any
from urllib.parse import urlsplit

import psycopg


class Database:
    """A connection of its own to the database of a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_postgres = url.startswith("postgres")
        self._connection = self.connect()

    @property
    def path(self) -> str:
        """The file of a SQLite database."""
        return urlsplit(self.url).path[1:]

    def connect(self) -> Any:
        """Return a new connection that begins and commits only on request."""
        if self.is_postgres:
            return psycopg.connect(self.url, autocommit=True)
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def run(self, sql: str, *params: object) -> list[tuple[Any, ...]]:
        """Run one statement, with `?` for each parameter, and return its rows."""
        if self.is_postgres:
            sql = sql.replace("?", "%s")
        cursor = self._connection.execute(sql, params) if params else self._connection.execute(sql)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        self._connection.close()
