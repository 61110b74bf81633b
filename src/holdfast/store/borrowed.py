"""A transaction on the caller's own connection: SQLAlchemy's, Django's, or the driver's.

Nothing of these frameworks is imported: an object is known by its methods.

Invariants: the framework begins and ends the transaction in which the job is recorded; any other object is returned
unchanged, and the store refuses it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import ConnectionUnfitError, HoldfastError
from holdfast.core.redaction import redacted

if TYPE_CHECKING:
    from holdfast.store.store import Store
    from holdfast.store.transaction import Transaction

DRIVERS = frozenset({"sqlite3", "psycopg"})
TAKEN = (
    "Pass a connection of sqlite3 or psycopg, or a Session or Connection of SQLAlchemy, whose engine for PostgreSQL is "
    "create_engine('postgresql+psycopg://…')."
)
_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, since Python 3.12: the driver begins by itself


@contextmanager
def borrowed(store: Store[Any], given: Any) -> Iterator[Transaction]:
    """Yield a transaction on a connection of the caller, who begins and commits it."""
    try:
        connection = driver_connection(given, store.translate)
        store.require_fit(connection)
        transaction = store.transactions(store, connection)
        yield transaction
        store.announce_inside(connection, transaction.queues_to_announce)
    except HoldfastError:
        raise
    except Exception as error:
        raise store.translated(error) from error


def driver_connection(given: Any, translate: Callable[[Exception], HoldfastError | None]) -> Any:
    """Return the driver's connection of an object; the object itself if it has none.

    Raise ConnectionUnfitError if the object cannot be used now, such as a session that has no engine; what `translate`
    makes of the driver's error if it cannot connect or begin.
    """
    if DRIVERS & {kind.__module__.partition(".")[0] for kind in type(given).__mro__}:
        _require_open(given)
        return given
    try:
        return _below(given)
    except ConnectionUnfitError:
        raise
    except Exception as error:
        raise unusable(given, error, translate) from error


def _require_open(given: Any) -> None:
    """Raise ConnectionUnfitError if the caller has closed the connection, or this thread may not use it."""
    cause = (
        "the connection is closed" if getattr(given, "closed", False) and not getattr(given, "broken", False) else None
    )
    if isinstance(given, sqlite3.Connection):
        try:
            given.cursor().close()
        except sqlite3.ProgrammingError as error:
            cause = f"the connection cannot be used: {error}"
    if cause is not None:
        raise ConnectionUnfitError(
            cause, context={"needs": "open"}, next_step="Pass an open connection, in the thread that opened it."
        )


def unusable(given: Any, error: Exception, translate: Callable[[Exception], HoldfastError | None]) -> HoldfastError:
    """Return the error for an object that gives no connection now: that of the database, or ConnectionUnfitError."""
    for one in (error, error.__cause__):
        if isinstance(one, Exception) and (known := translate(one)) is not None:
            return known
    return ConnectionUnfitError(
        f"the {type(given).__name__} gives no connection: {redacted(str(error))}",
        context={"needs": "connection"}, next_step="Use it while it is open, and bound to one engine.",
    )  # fmt: skip


def not_taken(given: Any, driver: str) -> ConnectionUnfitError:
    """Return the error for an object that is no connection of the driver of a ledger."""
    return ConnectionUnfitError(
        f"a {driver} connection is needed, not a {type(given).__name__}", context={"needs": driver}, next_step=TAKEN
    )


def _below(given: Any) -> Any:
    if _has(given, "ensure_connection"):  # Django
        given.ensure_connection()
        return given.connection
    if _has(given, "run_sync"):  # SQLAlchemy's AsyncSession or AsyncConnection
        raise ConnectionUnfitError(
            f"{type(given).__name__} is asynchronous", context={"needs": "synchronous"},
            next_step="Use submit_async, or its synchronous kind.",
        )  # fmt: skip
    if _has(given, "get_bind"):  # SQLAlchemy's Session
        given = given.connection()
    if not _has(given, "in_transaction", "begin") or not hasattr(given, "connection"):
        return given
    if not given.in_transaction():
        given.begin()  # as its first statement would; without it, its commit would do nothing
    driver = given.connection.driver_connection
    if isinstance(driver, sqlite3.Connection) and not driver.in_transaction and _begins_late(driver):
        driver.execute("BEGIN IMMEDIATE")
    return driver


def _begins_late(driver: sqlite3.Connection) -> bool:
    """Return whether the driver begins a transaction at the first write, and its `commit` ends one."""
    return driver.isolation_level is not None and getattr(driver, "autocommit", _LEGACY) == _LEGACY


def _has(given: object, *methods: str) -> bool:
    return all(callable(getattr(given, name, None)) for name in methods)
