"""The transaction of an asynchronous connection, used by plain code: psycopg's AsyncConnection, also below SQLAlchemy.

The plain code runs in a thread, on a plain connection over the same session of the server. The event loop is free
meanwhile.

Invariants: while the thread uses the session, its asynchronous connection is locked, also if the task is cancelled; the
transaction is begun by the asynchronous connection, which also ends it; the plain connection prepares no statements,
whose names are those of the other, and it never closes the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from holdfast.core.errors import ConnectionUnfitError, HoldfastError
from holdfast.store.borrowed import unusable

T = TypeVar("T")

NEXT = (
    "Pass psycopg's AsyncConnection, or SQLAlchemy's AsyncSession or AsyncConnection on postgresql+psycopg://…; for a "
    "plain connection use `submit`."
)


async def with_plain_connection(
    given: Any, use: Callable[[Any], T], translate: Callable[[Exception], HoldfastError | None]
) -> T:
    """Return what `use` returns, called in a thread with a plain connection to the session of an asynchronous one.

    Raise ConnectionUnfitError if the object is no asynchronous connection of psycopg, or cannot be used now; what
    `translate` makes of the driver's error if it cannot connect or begin.
    """
    try:
        connection = await _begun(given)
    except ConnectionUnfitError:
        raise
    except Exception as error:
        raise unusable(given, error, translate) from error
    async with connection.lock:
        return await _finished(asyncio.ensure_future(asyncio.to_thread(_used, connection, use)))


async def _begun(given: Any) -> psycopg.AsyncConnection[Any]:
    connection = await _driver_connection(given)
    if not isinstance(connection, psycopg.AsyncConnection):
        raise ConnectionUnfitError(
            f"an asynchronous connection of psycopg is needed, not a {type(connection).__name__}",
            context={"needs": "psycopg.AsyncConnection"}, next_step=NEXT,
        )  # fmt: skip
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        raise ConnectionUnfitError(
            "the connection is in pipeline mode", context={"needs": "pipeline"}, next_step="Submit after the pipeline."
        )
    if connection.pgconn.transaction_status == TransactionStatus.IDLE and not connection.autocommit:
        await connection.execute("SELECT")  # begins, with the settings that the caller gave to the connection
    return connection


async def _driver_connection(given: Any) -> Any:
    if isinstance(given, psycopg.AsyncConnection) or not callable(getattr(given, "run_sync", None)):
        return given
    if callable(getattr(given, "get_bind", None)):  # SQLAlchemy's AsyncSession
        given = await given.connection()
    if not given.in_transaction():
        await given.begin()  # as its first statement would; without it, its commit would do nothing
    return (await given.get_raw_connection()).driver_connection


async def _finished(work: asyncio.Future[T]) -> T:
    """Return the result of work that cannot be cancelled; a cancellation of the caller is raised after it."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        work.exception()  # read, so that asyncio does not report an exception that was never retrieved
        raise cancelled
    return work.result()


def _used(connection: psycopg.AsyncConnection[Any], use: Callable[[Any], T]) -> T:
    with _plain(connection) as plain:
        return use(plain)


@contextmanager
def _plain(connection: psycopg.AsyncConnection[Any]) -> Iterator[psycopg.Connection[Any]]:
    session = connection.pgconn
    handlers = session.notice_handler, session.notify_handler
    plain = psycopg.Connection[Any](session)
    try:
        plain.prepare_threshold = None
        if session.transaction_status == TransactionStatus.IDLE:
            plain.autocommit = True  # as the asynchronous one is, so that the store refuses it
        yield plain
    finally:
        session.notice_handler, session.notify_handler = handlers
        del plain.pgconn  # the asynchronous connection closes the session
