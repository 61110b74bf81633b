# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# The library is installed in this driver's own environment only.
"""Drives pgqueuer over asyncpg and uvloop, as its own command line and benchmark do.

Invariants: every table is logged (its "durable" level); a job is done when the commit that logs it has returned.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer, Queries
from pgqueuer.models import Job

from _peer import main
from _pg import PostgresPeer

WORKER_POOL = 4
EFFECT_POOL = 20
# Its trigger notifies, and PostgreSQL lets one notifying transaction at a time commit: 100 connections were
# no faster than 10.
SUBMIT_POOL = 10


class CountingQueries(Queries):
    """The library's own statements; reports each job whose end is logged."""

    handler = None

    async def log_jobs(self, job_status: list) -> None:
        await super().log_jobs(job_status)
        for job, *_ in job_status:
            self.handler.ended(json.loads(job.payload)["amount"] if self.handler.mode == "mixed" else 0)


def open_pool(url: str, size: int) -> asyncpg.Pool:
    return asyncpg.create_pool(url, min_size=size, max_size=size)


class Driver(PostgresPeer):
    name = "pgqueuer"
    setting, settings = "batch", (100, 500)
    is_async = True
    rest_query = "SELECT count(*) FROM pgqueuer WHERE status IN ('queued', 'picked')"

    def run(self, scenario):
        return uvloop.run(scenario)

    def install(self, url):
        async def install() -> None:
            connection = await asyncpg.connect(url)
            queries = Queries(AsyncpgDriver(connection))
            await queries.install()
            await queries.optimize_autovacuum()
            await connection.close()

        asyncio.run(install())

    async def put(self, where, payloads):
        connection = await asyncpg.connect(where)
        n = len(payloads)
        jobs = [json.dumps(payload).encode() for payload in payloads]
        await Queries(AsyncpgDriver(connection)).enqueue(["handle"] * n, jobs, [0] * n)
        await connection.close()

    @asynccontextmanager
    async def submitting(self, where, callers):
        async with AsyncExitStack() as stack:
            if callers == 1:
                connection = await asyncpg.connect(where)
                stack.push_async_callback(connection.close)
                driver = AsyncpgDriver(connection)
            else:
                pool = await stack.enter_async_context(open_pool(where, min(callers, SUBMIT_POOL)))
                driver = AsyncpgPoolDriver(pool)
            queries = Queries(driver)
            yield lambda payload: queries.enqueue("handle", json.dumps(payload).encode())

    def work(self, handler):
        uvloop.run(self._work(handler))

    async def _work(self, handler) -> None:
        async with AsyncExitStack() as stack:
            driver = AsyncpgPoolDriver(await stack.enter_async_context(open_pool(handler.where, WORKER_POOL)))
            queries = CountingQueries(driver)
            queries.handler = handler
            handler.by_commit = True
            queue = PgQueuer(driver, queries=queries)
            # A separate pool: waiting handlers would delay the claims of the library's own pool.
            effects = await stack.enter_async_context(open_pool(handler.where, EFFECT_POOL if handler.effect else 1))

            @queue.entrypoint("handle")
            async def handle(job: Job) -> None:
                handler.enter()
                payload = json.loads(job.payload)
                if handler.effect:
                    await effects.execute("INSERT INTO effects VALUES ($1, $2)", payload["order"], payload["amount"])
                handler.leave(payload)

            handler.ready()
            await queue.run(batch_size=handler.setting or 10)


main(Driver())
