# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, ARG002
# The library is installed in this driver's own environment only.
"""Drives taskiq on Redis streams, the broker of taskiq-redis that acknowledges.

Invariants: at most 100 tasks at a time a process, as its command line has it; a job of a mixed load counts as done when
its handler is.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from _peer import main
from _redis import RedisPeer


class Driver(RedisPeer):
    name = "taskiq"
    setting, settings = "tasks", (100,)
    is_async = True
    bulk = False
    done = "handler"

    async def put(self, where, payloads):
        with self.seeding():
            async with self.submitting(where, 1) as submit:
                for payload in payloads:
                    await submit(payload)

    @asynccontextmanager
    async def submitting(self, where, callers):
        broker = RedisStreamBroker(where)
        await broker.startup()
        yield broker.register_task(_nothing, task_name="handle").kiq
        await broker.shutdown()

    def work(self, handler):
        asyncio.run(self._work(handler))

    async def _work(self, handler):
        broker = RedisStreamBroker(handler.where)

        @broker.task(task_name="handle")
        async def handle(payload):
            handler.enter()
            handler.leave(payload)

        handler.ready()
        await run_receiver_task(broker, max_async_tasks=handler.setting or 100, run_startup=True)

    def rest(self, where):
        if not self.server.exists("taskiq"):
            return 0
        [group] = self.server.xinfo_groups("taskiq")
        return group["pending"] + len(self.server.xrange("taskiq", b"(" + group["last-delivered-id"]))


async def _nothing(payload):
    pass


main(Driver())
