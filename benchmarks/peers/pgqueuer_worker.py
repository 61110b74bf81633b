# mypy: ignore-errors
# The library is installed in this worker's own environment only.
"""An idle pgqueuer worker, woken by NOTIFY."""

from __future__ import annotations

import sys

import asyncpg
import uvloop
from pgqueuer import Job, PgQueuer

from _worker import live_with_sampler, started


async def main() -> None:
    queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(sys.argv[1]))

    @queue.entrypoint("handle")
    async def handle(_job: Job) -> None:
        started()

    await queue.run()


live_with_sampler()
uvloop.run(main())
