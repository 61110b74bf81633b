# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202
# The library is installed in this driver's own environment only.
"""Drives procrastinate over psycopg's pool, with async tasks.

Invariants: a job is done when the commit that says so has returned.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Job

from _peer import main
from _pg import INSERT_EFFECT, PostgresPeer

WORKER_POOL = 20
# Its trigger notifies, and PostgreSQL lets one notifying transaction at a time commit: 50 connections were
# no faster than 10.
SUBMIT_POOL = 10


def application(url: str, pool: int) -> App:
    return App(connector=PsycopgConnector(conninfo=url, min_size=pool, max_size=pool))


class Driver(PostgresPeer):
    name = "procrastinate"
    settings = (10, 100)
    is_async = True
    rest_query = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

    @asynccontextmanager
    async def _task(self, where: str, pool: int):
        app = application(where, pool)
        async with app.open_async():
            yield app.task(name="handle")(_nothing)

    def install(self, url):
        from procrastinate.schema import SchemaManager  # noqa: PLC0415

        self.one(url, SchemaManager.get_schema())

    async def put(self, where, payloads):
        async with self._task(where, 1) as task:
            await task.batch_defer_async(*({"payload": payload} for payload in payloads))

    @asynccontextmanager
    async def submitting(self, where, callers):
        async with self._task(where, min(callers, SUBMIT_POOL)) as task:
            yield lambda payload: task.defer_async(payload=payload)

    def work(self, handler):
        asyncio.run(self._work(handler))

    async def _work(self, handler) -> None:
        app = application(handler.where, WORKER_POOL)

        @app.task(name="handle")
        async def handle(payload: dict) -> None:
            handler.enter()
            if handler.effect:
                async with app.connector.pool.connection() as connection:
                    await connection.execute(INSERT_EFFECT, (payload["order"], payload["amount"]))
            handler.leave(payload)

        async with app.open_async():
            finish = app.job_manager.finish_job

            async def finish_and_count(job: Job, *args: object, **kwargs: object) -> None:
                await finish(job, *args, **kwargs)
                handler.ended(job.task_kwargs["payload"]["amount"])

            app.job_manager.finish_job = finish_and_count
            handler.by_commit = True
            handler.ready()
            # Deleting succeeded jobs is a little faster than its default, which keeps them.
            await app.run_worker_async(
                concurrency=handler.setting or 10, delete_jobs="successful", install_signal_handlers=False
            )


async def _nothing(payload: dict) -> None:
    pass


main(Driver())
