"""The durable store of a ledger, with the same verbs on SQLite and PostgreSQL.

`open_store(url)` opens and verifies an existing ledger; `create_store(url)` creates it first if there is none.
"""

import os
import re
from pathlib import Path
from typing import Any

from holdfast.core.errors import StoreError
from holdfast.store.migrations import is_empty, migrate, verify
from holdfast.store.requests import Admission, Declared, Lease, Submission
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.store import Clock, Store
from holdfast.store.transaction import Transaction

__all__ = [
    "Admission",
    "Clock",
    "Declared",
    "Lease",
    "Store",
    "Submission",
    "Transaction",
    "checked_url",
    "connect",
    "create_store",
    "location",
    "open_store",
]  # fmt: skip


PLAIN_PATH = re.compile(r"[\w./~+-]+")  # the name of a file that is nothing else: no URL, no password


def connect(url: str, clock: Clock | None = None, *, schema: str = "public", create: bool = False) -> Store[Any]:
    """Return the store of a URL without verifying it, such as for `migrate`."""
    scheme, path = location(url)
    if scheme == "sqlite":
        return SqliteStore(Path(path), url, clock, create=create)
    try:
        from holdfast.store.postgres.store import PostgresStore  # noqa: PLC0415 - psycopg is an extra
    except ImportError:
        raise StoreError(
            "PostgreSQL support is not installed", next_step="Install it with: pip install 'holdfast[postgres]'"
        ) from None
    return PostgresStore(url, clock, schema=schema)


def open_store(url: str, clock: Clock | None = None, *, schema: str = "public") -> Store[Any]:
    """Return the store of an existing ledger; raise a StoreError if there is none or it cannot be used."""
    return _verified(connect(url, clock, schema=schema))


def create_store(
    url: str, clock: Clock | None = None, *, schema: str = "public", environment: str = "dev", governed: bool = False
) -> Store[Any]:
    """Return the store of a ledger; create the ledger if the database is empty, else verify it without changes."""
    return _verified(connect(url, clock, schema=schema, create=True), environment=environment, governed=governed)


def _verified(store: Store[Any], **new: Any) -> Store[Any]:
    """Return a store whose ledger was verified; `new` are the settings of one that may be created first."""
    try:
        if new and is_empty(store):
            migrate(store, only_empty=True, **new)
        verify(store)
    except BaseException:
        store.close()
        raise
    return store


def checked_url(url: str | os.PathLike[str]) -> str:
    """Return the URL as text, or raise BadUrlError if it names no database."""
    location(url)
    return os.fspath(url)


def location(url: object) -> tuple[str, str]:
    """Return ("sqlite", path) or ("postgresql", url); raise BadUrlError if it is neither."""
    if isinstance(url, str) and PLAIN_PATH.fullmatch(url):
        return "sqlite", url
    from holdfast.store.urls import parsed  # noqa: PLC0415 - most ledgers are named by a plain path

    return parsed(url)
