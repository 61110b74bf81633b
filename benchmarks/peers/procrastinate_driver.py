# mypy: ignore-errors
# The library is installed in this driver's own environment only.
"""Drives procrastinate over psycopg's pool, with async tasks.

Invariants:
- fsync and synchronous_commit on: checked at the server.
- A job is finished when the commit that says so has returned, not when its handler has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import psycopg
from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Job
from procrastinate.tasks import Task

from _common import (
    BULK_CHUNK,
    EFFECTS_TABLE,
    PAYLOAD,
    Stopwatch,
    arguments,
    best,
    by_tasks,
    report,
    sample_idle,
    scratch_database,
)

DURABILITY = "synchronous_commit=on"
CONCURRENCIES = (10, 100)
WORKER_POOL = 20
# Its trigger notifies, and PostgreSQL lets one notifying transaction at a time commit: 50 connections were
# no faster than 10.
SUBMIT_POOL = 10


@asynccontextmanager
async def scratch(url: str) -> AsyncIterator[str]:
    name, scratch_url = scratch_database(url)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as server:
        for setting in ("fsync", "synchronous_commit"):
            if await (await server.execute(f"SHOW {setting}")).fetchone() != ("on",):
                raise SystemExit(f"the server is not durable: {setting} is off")
        await server.execute(f"CREATE DATABASE {name}")
        try:
            yield scratch_url
        finally:
            await server.execute(f"DROP DATABASE {name} (FORCE)")


@asynccontextmanager
async def application(base: str, pool: int) -> AsyncIterator[tuple[App, str]]:
    async with scratch(base) as url:
        app = App(connector=PsycopgConnector(conninfo=url, min_size=pool, max_size=pool))
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            yield app, url


def nothing_task(app: App) -> Task:
    @app.task(name="handle")
    async def handle(payload: dict) -> None:
        pass

    return handle


async def put_many(task: Task, n: int) -> None:
    for begin in range(0, n, BULK_CHUNK):
        count = min(BULK_CHUNK, n - begin)
        await task.batch_defer_async(*({"payload": PAYLOAD} for _ in range(count)))


async def count(url: str, query: str) -> int:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return (await (await connection.execute(query)).fetchone())[0]


async def drain(base: str, n: int, concurrency: int, *, effect: bool) -> dict:
    async with application(base, WORKER_POOL) as (app, url):
        if effect:

            @app.task(name="handle")
            async def handle(payload: dict) -> None:
                async with app.connector.pool.connection() as connection:
                    await connection.execute(
                        "INSERT INTO effects VALUES (%s, %s)", (payload["order"], payload["amount"])
                    )
        else:
            handle = nothing_task(app)
        await put_many(handle, n)
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute(EFFECTS_TABLE)
            # Autovacuum would do this in a queue that is a minute old.
            await connection.execute("VACUUM ANALYZE")
        watch, left = Stopwatch(), n
        fetch, finish = app.job_manager.fetch_job, app.job_manager.finish_job

        async def timed_fetch(**kwargs: object) -> Job | None:
            watch.start()
            return await fetch(**kwargs)

        async def timed_finish(**kwargs: object) -> None:
            nonlocal left
            await finish(**kwargs)
            left -= 1
            if left == 0:
                watch.stop()

        app.job_manager.fetch_job, app.job_manager.finish_job = timed_fetch, timed_finish
        # Deleting succeeded jobs is a little faster than its default, which keeps them.
        await app.run_worker_async(
            concurrency=concurrency, wait=False, delete_jobs="always", install_signal_handlers=False
        )
        rest = await count(url, "SELECT count(*) FROM procrastinate_jobs")
        effects = await count(url, "SELECT count(*) FROM effects")
        if rest != 0 or effects != (n if effect else 0):
            raise SystemExit(f"{rest} left and {effects} effects of {n} jobs")
    return {"setting": f"concurrency={concurrency}", "concurrency": concurrency, **watch.figures(n)}


async def idle(base: str, n: int) -> dict:
    async with application(base, 1) as (app, url):
        task = nothing_task(app)
        return await sample_idle("procrastinate", url, n, lambda: task.defer_async(payload=PAYLOAD))


async def bulk(base: str, n: int) -> dict:
    async with application(base, 1) as (app, _):
        task = nothing_task(app)
        watch = Stopwatch()
        watch.start()
        await put_many(task, n)
        watch.stop()
    return {"setting": f"{BULK_CHUNK} a call", **watch.figures(n)}


async def submit(base: str, n: int, callers: int) -> dict:
    size = min(callers, SUBMIT_POOL)
    async with application(base, size) as (app, url):
        task = nothing_task(app)

        def defer() -> Awaitable[int]:
            return task.defer_async(payload=PAYLOAD)

        # psycopg prepares a statement at its sixth use: before the watch starts.
        await by_tasks(6 * size, size, defer)
        figures = await by_tasks(n, callers, defer)
        if await count(url, "SELECT count(*) FROM procrastinate_jobs") != n + 6 * size:
            raise SystemExit("lost submissions")
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
        concurrencies = (args.concurrency,) if args.concurrency else CONCURRENCIES
        figures = best([await drain(args.url, args.n, c, effect=effect) for c in concurrencies])
    report("procrastinate", args, DURABILITY, figures)


asyncio.run(main())
