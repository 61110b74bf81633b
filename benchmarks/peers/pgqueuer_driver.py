# mypy: ignore-errors
# The library is installed in this driver's own environment only.
"""Drives pgqueuer over asyncpg and uvloop, as its own command line and benchmark do.

Invariants:
- Every table logged (its "durable" level), fsync and synchronous_commit on: checked at the server.
- A job is finished when the commit that logs it has returned, not when its handler has.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer, Queries
from pgqueuer.models import Context, Job

from _common import (
    BULK_CHUNK,
    EFFECTS_TABLE,
    PAYLOAD_BYTES,
    Stopwatch,
    arguments,
    best,
    by_tasks,
    report,
    sample_idle,
    scratch_database,
)

DURABILITY = "logged tables, synchronous_commit=on"
BATCHES = (100, 500)
WORKER_POOL = 4
EFFECT_POOL = 20
# Its trigger notifies, and PostgreSQL lets one notifying transaction at a time commit: 100 connections were
# no faster than 10.
SUBMIT_POOL = 10


class TimedQueries(Queries):
    """The library's own statements, with the stopwatch at the first claim and at each completion."""

    watch: Stopwatch
    left: int
    finished: Callable[[], None]

    async def dequeue(self, *args: object, **kwargs: object) -> list[Job]:
        self.watch.start()
        return await super().dequeue(*args, **kwargs)

    async def log_jobs(self, job_status: list) -> None:
        await super().log_jobs(job_status)
        self.left -= len(job_status)
        if self.left == 0:
            self.watch.stop()
            self.finished()


@asynccontextmanager
async def scratch(url: str) -> AsyncIterator[str]:
    name, scratch_url = scratch_database(url)
    server = await asyncpg.connect(url)
    settings = [await server.fetchval(f"SHOW {name}") for name in ("fsync", "synchronous_commit")]
    if settings != ["on", "on"]:
        raise SystemExit(f"the server is not durable: {settings}")
    await server.execute(f"CREATE DATABASE {name}")
    try:
        connection = await asyncpg.connect(scratch_url)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.close()
        yield scratch_url
    finally:
        await server.execute(f"DROP DATABASE {name} (FORCE)")
        await server.close()


def open_pool(url: str, size: int) -> asyncpg.Pool:
    return asyncpg.create_pool(url, min_size=size, max_size=size)


async def put_many(connection: asyncpg.Connection, n: int) -> None:
    queries = Queries(AsyncpgDriver(connection))
    for begin in range(0, n, BULK_CHUNK):
        count = min(BULK_CHUNK, n - begin)
        await queries.enqueue(["handle"] * count, [PAYLOAD_BYTES] * count, [0] * count)


async def drain(base: str, n: int, batch: int, *, effect: bool) -> dict:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(scratch(base))
        connection = await asyncpg.connect(url)
        await connection.execute(EFFECTS_TABLE)
        await put_many(connection, n)
        # Autovacuum would do this in a queue that is a minute old.
        await connection.execute("VACUUM ANALYZE")
        driver = AsyncpgPoolDriver(await stack.enter_async_context(open_pool(url, WORKER_POOL)))
        queries = TimedQueries(driver)
        queries.watch, queries.left = Stopwatch(), n
        queue = PgQueuer(driver, queries=queries)
        queries.finished = queue.shutdown.set
        if effect:
            # A separate pool: waiting handlers would delay the claims of the library's own pool.
            queue.resources["pool"] = await stack.enter_async_context(open_pool(url, EFFECT_POOL))

            @queue.entrypoint("handle")
            async def handle(job: Job, context: Context) -> None:
                payload = json.loads(job.payload)
                await context.resources["pool"].execute(
                    "INSERT INTO effects VALUES ($1, $2)", payload["order"], payload["amount"]
                )
        else:

            @queue.entrypoint("handle")
            async def handle(job: Job) -> None:
                pass

        await queue.run(batch_size=batch)
        rest = await connection.fetchval("SELECT count(*) FROM pgqueuer")
        effects = await connection.fetchval("SELECT count(*) FROM effects")
        if rest != 0 or effects != (n if effect else 0):
            raise SystemExit(f"{rest} left and {effects} effects of {n} jobs")
        await connection.close()
    return {"setting": f"batch={batch}", "concurrency": batch, **queries.watch.figures(n)}


async def idle(base: str, n: int) -> dict:
    async with scratch(base) as url:
        connection = await asyncpg.connect(url)
        queries = Queries(AsyncpgDriver(connection))
        figures = await sample_idle("pgqueuer", url, n, lambda: queries.enqueue("handle", PAYLOAD_BYTES))
        await connection.close()
    return figures


async def bulk(base: str, n: int) -> dict:
    async with scratch(base) as url:
        connection = await asyncpg.connect(url)
        watch = Stopwatch()
        watch.start()
        await put_many(connection, n)
        watch.stop()
        await connection.close()
    return {"setting": f"{BULK_CHUNK} a call", **watch.figures(n)}


async def submit(base: str, n: int, callers: int) -> dict:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(scratch(base))
        connection = await asyncpg.connect(url)
        driver = AsyncpgDriver(connection)
        size = min(callers, SUBMIT_POOL)
        if size > 1:
            driver = AsyncpgPoolDriver(await stack.enter_async_context(open_pool(url, size)))
        queries = Queries(driver)

        def enqueue() -> Awaitable[object]:
            return queries.enqueue("handle", PAYLOAD_BYTES)

        # Each connection prepares its statement once, before the watch starts.
        await by_tasks(2 * size, size, enqueue)
        figures = await by_tasks(n, callers, enqueue)
        if await connection.fetchval("SELECT count(*) FROM pgqueuer") != n + 2 * size:
            raise SystemExit("lost submissions")
        await connection.close()
    return {"setting": f"connections={size}", **figures}


async def main() -> None:
    args = arguments()
    if args.scenario == "submit":
        figures = await submit(args.url, args.n, args.callers)
    elif args.scenario == "bulk":
        figures = await bulk(args.url, args.n)
    elif args.scenario == "idle":
        figures = await idle(args.url, args.n)
    else:
        effect = args.scenario == "drain-effect"
        batches = (args.concurrency,) if args.concurrency else BATCHES
        figures = best([await drain(args.url, args.n, batch, effect=effect) for batch in batches])
    report("pgqueuer", args, DURABILITY, figures)


uvloop.run(main())
