# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, SLF001
# The library is installed in this driver's own environment only.
"""Drives oban, the Python port of its authors, over psycopg's pool and uvloop, as `oban start` does.

Invariants: a job is done when its acknowledgement has returned; oban keeps finished jobs, as Holdfast does.
"""

from __future__ import annotations

from contextlib import asynccontextmanager

import uvloop
from oban import Oban, worker
from oban.schema import install_sql

from _peer import main
from _pg import INSERT_EFFECT, PostgresPeer

SUBMIT_POOL = 10


@worker(queue="bench", max_attempts=1)
class Handle:
    handler = None
    pool = None

    async def process(self, job):
        self.handler.enter()
        if self.handler.effect:
            async with self.pool.connection() as connection:
                await connection.execute(INSERT_EFFECT, (job.args["order"], job.args["amount"]))
        self.handler.leave(job.args)


class Driver(PostgresPeer):
    name = "oban"
    setting, settings = "limit", (10, 100)
    is_async = True
    rest_query = "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'scheduled', 'executing', 'retryable')"

    def run(self, scenario):
        return uvloop.run(scenario)

    def install(self, url):
        self.one(url, install_sql())

    async def put(self, where, payloads):
        async with self.submitting(where, 1, many=True) as enqueue:
            await enqueue([Handle.new(payload) for payload in payloads])

    @asynccontextmanager
    async def submitting(self, where, callers, *, many=False):
        size = min(callers, SUBMIT_POOL)
        pool = await Oban.create_pool(where, min_size=size, max_size=size)
        async with Oban(pool=pool) as oban:
            yield oban.enqueue_many if many else lambda payload: oban.enqueue(Handle.new(payload))
        await pool.close()

    def work(self, handler):
        uvloop.run(self._work(handler))

    async def _work(self, handler):
        pool = await Oban.create_pool(handler.where)
        Handle.handler, Handle.pool = handler, pool
        oban = Oban(pool=pool, queues={"bench": handler.setting or 10})
        acknowledge = oban._query.ack_jobs

        async def acknowledge_and_count(acks):
            ids = await acknowledge(acks)
            for ack in acks:
                handler.ended(ack.job.args["amount"])
            return ids

        oban._query.ack_jobs = acknowledge_and_count
        handler.by_commit = True
        handler.ready()
        await oban.start()
        import asyncio  # noqa: PLC0415

        await asyncio.Event().wait()


main(Driver())
