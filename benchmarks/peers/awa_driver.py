# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, ARG002
# The library is installed in this driver's own environment only.
"""Drives awa, whose queue engine is Rust and whose handlers are Python coroutines.

Invariants: jobs are in its queue storage, which a fresh installation uses; the engine completes a job without a call to
Python, so a job of a mixed load counts as done when its handler is.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass

import awa
from psycopg_pool import AsyncConnectionPool

from _peer import main
from _pg import INSERT_EFFECT, PostgresPeer

EFFECT_POOL = 20


@dataclass
class Handle:
    order: str
    customer: str
    amount: int
    currency: str
    lines: list
    note: str


class Driver(PostgresPeer):
    name, distribution = "awa", "awa-pg"
    setting, settings = "workers", (100, 1000)  # its guide: about 1,000 for jobs that do nothing
    is_async = True
    done = "handler"

    def install(self, url):
        with awa.Client(url) as client:
            client.migrate()
        # What the first worker of a fresh installation does: jobs can be enqueued before there is a worker.
        self.one(url, "SELECT awa.storage_auto_finalize_if_fresh('awa')")

    async def put(self, where, payloads):
        async with awa.AsyncClient(where) as client:
            await client.enqueue_many_copy([Handle(**p) for p in payloads], queue="bench", max_attempts=1)

    @asynccontextmanager
    async def submitting(self, where, callers):
        async with awa.AsyncClient(where) as client:
            yield lambda payload: client.insert(Handle(**payload), queue="bench", max_attempts=1)

    def work(self, handler):
        asyncio.run(self._work(handler))

    async def _work(self, handler):
        client = awa.AsyncClient(handler.where)
        effects = AsyncConnectionPool(handler.where, min_size=1, max_size=EFFECT_POOL, open=False)
        if handler.effect:
            await effects.open()

        @client.task(Handle, queue="bench")
        async def handle(job):
            handler.enter()
            if handler.effect:
                async with effects.connection() as connection:
                    await connection.execute(INSERT_EFFECT, (job.args.order, job.args.amount))
            handler.leave(vars(job.args))

        handler.ready()
        await client.start([("bench", handler.setting or 50)])
        await asyncio.Event().wait()

    def rest(self, where):
        with awa.Client(where) as client:
            return sum(s.available + s.running + s.scheduled + s.retryable for s in client.queue_stats())


main(Driver())
