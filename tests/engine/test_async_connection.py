"""`submit_async(connection=…)`: psycopg's AsyncConnection, and what SQLAlchemy has above it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import dict_row
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from holdfast import Ledger
from holdfast.core.errors import ConnectionUnfitError, StoreUnavailableError
from tests.engine.database import Database

INSERT = "INSERT INTO orders (n) VALUES (1)"


@pytest.fixture
def on_postgres(new_postgres_ledger: str) -> Iterator[Ledger]:
    database = Database(new_postgres_ledger)
    database.run("CREATE TABLE orders (n integer NOT NULL)")
    database.close()
    with Ledger(new_postgres_ledger) as ledger:
        ledger.counts()
        yield ledger


def kept(ledger: Ledger) -> tuple[list[str], int]:
    """Return the keys of the jobs, and the number of orders."""
    with ledger.store.reading() as reading:
        [(n,)] = reading.execute("SELECT count(*) FROM orders")
        return sorted(job.key or "" for job in reading.lists.jobs()), n


@asynccontextmanager
async def engine_of(ledger: Ledger) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(str(ledger.url).replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    await engine.dispose()


async def refused(ledger: Ledger, connection: Any) -> object:
    with pytest.raises(ConnectionUnfitError) as caught:
        await ledger.submit_async("noop", connection=connection)
    assert caught.value.hint
    return caught.value.context["needs"]


def test_a_job_commits_and_rolls_back_with_an_asynchronous_connection(on_postgres: Ledger) -> None:
    async def main() -> None:
        async with await AsyncConnection.connect(str(on_postgres.url), row_factory=dict_row) as connection:
            for key, end in (("a", connection.rollback), ("b", connection.commit), ("c", connection.commit)):
                if key != "c":  # the third begins with the job
                    await connection.execute(INSERT)
                for is_new in (True, False):
                    receipt = await on_postgres.submit_async("noop", client="c", key=key, connection=connection)
                    assert receipt.is_new is is_new
                assert key not in kept(on_postgres)[0]
                if key == "c":
                    await connection.execute(INSERT)
                await end()

    asyncio.run(main())
    assert kept(on_postgres) == (["b", "c"], 2)
    assert on_postgres.run_until_idle() == 2


def test_the_connection_is_as_before_and_in_a_block_of_its_own(on_postgres: Ledger) -> None:
    async def main() -> None:
        notices: list[str | None] = []
        async with await AsyncConnection.connect(str(on_postgres.url), autocommit=True) as connection:
            connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
            connection.prepare_threshold = 0
            async with connection.transaction():
                await connection.execute("SELECT 1")  # prepared under a name of the driver's
                async with connection.transaction(force_rollback=True):
                    await on_postgres.submit_async("noop", client="c", key="a", connection=connection)
                await on_postgres.submit_async("noop", client="c", key="b", connection=connection)
                cursor = await connection.execute("SELECT 1")
                assert await cursor.fetchall() == [(1,)]
                await connection.execute("DO $$ BEGIN RAISE NOTICE 'hello'; END $$")
            assert (notices, connection.autocommit, connection.closed) == (["hello"], True, False)

    asyncio.run(main())
    assert kept(on_postgres) == (["b"], 0)


def test_tasks_take_turns_on_one_connection_and_the_loop_is_free(on_postgres: Ledger) -> None:
    async def main() -> None:
        async with await AsyncConnection.connect(str(on_postgres.url)) as connection:
            receipts = await asyncio.gather(
                *(on_postgres.submit_async("noop", client="c", key=f"{n}", connection=connection) for n in range(9)),
                *(connection.execute(INSERT) for _ in range(9)),
            )
            assert len(receipts) == 18
            await connection.commit()

    asyncio.run(main())
    assert kept(on_postgres) == ([f"{n}" for n in range(9)], 9)


def test_a_cancelled_submit_leaves_the_connection_usable(on_postgres: Ledger) -> None:
    blocking = psycopg.connect(str(on_postgres.url))
    blocking.execute("LOCK TABLE holdfast_jobs IN ACCESS EXCLUSIVE MODE")

    async def main() -> None:
        async with await AsyncConnection.connect(str(on_postgres.url)) as connection:
            submit = on_postgres.submit_async("noop", client="c", key="a", connection=connection)
            task = asyncio.create_task(submit)
            with psycopg.connect(str(on_postgres.url), autocommit=True) as looking:
                until = time.monotonic() + 30
                waiting = "SELECT 1 FROM pg_locks WHERE pid = %s AND NOT granted"
                while not looking.execute(waiting, (connection.info.backend_pid,)).fetchall():
                    assert time.monotonic() < until
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.sleep(0.05)
            assert not task.done()  # the thread still uses the connection
            blocking.rollback()
            with pytest.raises(asyncio.CancelledError):
                await task
            await connection.execute(INSERT)
            await connection.commit()

    asyncio.run(main())
    blocking.close()
    assert kept(on_postgres) == (["a"], 1)


def test_sqlalchemys_asynchronous_session_and_connection(on_postgres: Ledger) -> None:
    async def main() -> None:
        async with engine_of(on_postgres) as engine:
            for kind in ("session", "connection"):
                async with AsyncSession(engine) if kind == "session" else engine.connect() as given:
                    await on_postgres.submit_async("noop", client=kind, key="a", connection=given)
                    await given.execute(text(INSERT))
                    await given.rollback()
                    await on_postgres.submit_async("noop", client=kind, key="b", connection=given)
                    await given.execute(text(INSERT))
                    await given.commit()

    asyncio.run(main())
    assert kept(on_postgres) == (["b", "b"], 2)


def test_an_unsuitable_connection_is_a_typed_error(on_postgres: Ledger, sqlite_url: str) -> None:
    async def main() -> None:
        async with await AsyncConnection.connect(str(on_postgres.url), autocommit=True) as connection:
            assert await refused(on_postgres, connection) == "transaction"
        async with await AsyncConnection.connect(str(on_postgres.url)) as connection:
            await connection.set_isolation_level(IsolationLevel.SERIALIZABLE)
            assert await refused(on_postgres, connection) == "isolation"
            await connection.rollback()
            async with connection.pipeline():
                assert await refused(on_postgres, connection) == "pipeline"
            await connection.rollback()
            with Ledger(sqlite_url) as other:
                assert await refused(other, connection) == "submit"
        with pytest.raises(StoreUnavailableError):
            await on_postgres.submit_async("noop", connection=connection)  # it is closed
        assert await refused(on_postgres, AsyncSession()) == "connection"
        unreachable = create_async_engine("postgresql+psycopg://127.0.0.1:1/none")
        async with AsyncSession(unreachable) as session:
            with pytest.raises(StoreUnavailableError):
                await on_postgres.submit_async("noop", connection=session)
        for unknown in (object(), json, sqlite3.connect(":memory:"), 7):
            assert await refused(on_postgres, unknown) == "psycopg.AsyncConnection"

    asyncio.run(main())
    assert kept(on_postgres) == ([], 0)
