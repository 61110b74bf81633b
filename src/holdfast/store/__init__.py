"""The durable store of a ledger, with the same verbs on SQLite and PostgreSQL.

`open_store(url)` opens and verifies an existing ledger; `create_store(url)` creates it first if there is none.
"""

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.core.environments import ENVIRONMENTS
from holdfast.core.errors import BadUrlError, StoreError
from holdfast.store.migrations import is_empty, migrate, verify
from holdfast.store.requests import Admission, Declared, Lease, Submission
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.store import Clock, Store
from holdfast.store.transaction import Transaction

__all__ = [
    "ENVIRONMENTS", "Admission", "Clock", "Declared", "Lease", "Store", "Submission", "Transaction", "connect",
    "create_store", "open_store",
]  # fmt: skip


def connect(url: str, clock: Clock | None = None, *, schema: str = "public", create: bool = False) -> Store[Any]:
    """Return the store of a URL without verifying it, such as for `migrate`."""
    scheme, path = _parse(url)
    if scheme == "sqlite":
        return SqliteStore(Path(path), url, clock, create=create)
    try:
        from holdfast.store.postgres.store import PostgresStore  # noqa: PLC0415 - psycopg is an extra
    except ImportError:
        raise StoreError(
            "PostgreSQL support is not installed",
            next_step="Install it with: pip install 'holdfast[postgres]'",
        ) from None
    return PostgresStore(url, clock, schema=schema)


def open_store(url: str, clock: Clock | None = None, *, schema: str = "public") -> Store[Any]:
    """Return the store of an existing ledger; raise a StoreError if there is none or it cannot be used."""
    return _verified(connect(url, clock, schema=schema))


def create_store(
    url: str,
    clock: Clock | None = None,
    *,
    schema: str = "public",
    environment: str = "dev",
    governed: bool = False,
) -> Store[Any]:
    """Return the store of a ledger; create the ledger if the database is empty, else verify it without changes."""
    store = connect(url, clock, schema=schema, create=True)
    try:
        if is_empty(store):
            migrate(store, environment=environment, governed=governed, only_empty=True)
    except BaseException:
        store.close()
        raise
    return _verified(store)


def _verified(store: Store[Any]) -> Store[Any]:
    try:
        verify(store)
    except BaseException:
        store.close()
        raise
    return store


def _parse(url: str) -> tuple[str, str]:
    """Return ("sqlite", path) or ("postgresql", url). Three slashes begin a relative path, four an absolute one."""
    if "://" not in url:
        if not url.strip() or "\0" in url:
            raise BadUrlError("the URL of the ledger is empty")
        return "sqlite", url
    try:
        parts = urlsplit(url)
    except ValueError as error:  # brackets that do not close
        raise BadUrlError(f"the URL of the ledger is invalid: {error}") from None
    if parts.scheme in ("postgresql", "postgres"):
        return "postgresql", url
    if parts.scheme == "sqlite":
        if parts.netloc or len(parts.path) < 2 or "\0" in unquote(parts.path):
            raise BadUrlError("a SQLite URL must be sqlite:///relative/path or sqlite:////absolute/path")
        return "sqlite", unquote(parts.path[1:])
    raise BadUrlError(f"unknown database {parts.scheme!r}; use sqlite or postgresql", context={"scheme": parts.scheme})
