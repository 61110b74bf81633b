# mypy: ignore-errors
# The library is installed in this worker's own environment only.
"""An idle procrastinate worker, woken by NOTIFY."""

from __future__ import annotations

import asyncio
import sys

from procrastinate import App, PsycopgConnector

from _worker import live_with_sampler, started

app = App(connector=PsycopgConnector(conninfo=sys.argv[1]))


@app.task(name="handle")
async def handle(payload: dict) -> None:  # noqa: ARG001 -- passed by name
    started()


async def main() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=10)


live_with_sampler()
asyncio.run(main())
