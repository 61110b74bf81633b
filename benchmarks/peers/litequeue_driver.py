# mypy: ignore-errors
# The library is installed in this driver's own environment only.
"""Drives litequeue.

Invariants:
- It sets synchronous=NORMAL; the driver forces FULL on the one connection that writes.
- It refuses a database with other tables, so effects go to a second file, with FULL too.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

from litequeue import LiteQueue

from _common import (
    BULK_CHUNK,
    EFFECTS_TABLE,
    PAYLOAD_TEXT,
    Stopwatch,
    arguments,
    by_threads,
    report,
    sample_idle,
    scratch_file,
)
from _worker import POLL_SECONDS

DURABILITY = "WAL, synchronous=FULL (forced; its default is NORMAL)"


def open_queue(path: Path) -> LiteQueue:
    queue = LiteQueue(path, timeout=60)
    queue.conn.execute("PRAGMA synchronous=FULL")
    return queue


def put_many(queue: LiteQueue, n: int) -> None:
    for begin in range(0, n, BULK_CHUNK):
        with queue.transaction("IMMEDIATE"):
            for _ in range(min(BULK_CHUNK, n - begin)):
                queue.put(PAYLOAD_TEXT)


def drain(path: Path, n: int, *, effect: bool) -> dict:
    queue = open_queue(path)
    put_many(queue, n)
    effects = sqlite3.connect(path.with_name("effects.db"), isolation_level=None)
    effects.execute("PRAGMA journal_mode=WAL")
    effects.execute("PRAGMA synchronous=FULL")
    effects.execute(EFFECTS_TABLE)
    watch = Stopwatch()
    watch.start()
    while (message := queue.pop()) is not None:
        if effect:
            payload = json.loads(message.data)
            effects.execute("INSERT INTO effects VALUES (?, ?)", (payload["order"], payload["amount"]))
        queue.done(message.message_id, claim_id=message.claim_id)
    watch.stop()
    (count,) = effects.execute("SELECT count(*) FROM effects").fetchone()
    if queue.done_count() != n or count != (n if effect else 0):
        raise SystemExit(f"{queue.done_count()} done and {count} effects of {n} jobs")
    return {"concurrency": 1, **watch.figures(n)}


def idle(path: Path, n: int) -> dict:
    queue = open_queue(path)

    async def submit() -> None:
        queue.put(PAYLOAD_TEXT)

    return {"poll_ms": POLL_SECONDS * 1000, **asyncio.run(sample_idle("litequeue", str(path), n, submit))}


def bulk(path: Path, n: int) -> dict:
    queue = open_queue(path)
    watch = Stopwatch()
    watch.start()
    put_many(queue, n)
    watch.stop()
    return {"setting": f"{BULK_CHUNK} puts a transaction()", **watch.figures(n)}


def submit(path: Path, n: int, callers: int) -> dict:
    queue = open_queue(path)
    figures = by_threads(n, callers, lambda: queue.put(PAYLOAD_TEXT))
    if queue.ready_count() != n:
        raise SystemExit("lost submissions")
    return figures


def main() -> None:
    args = arguments()
    with scratch_file(args.url) as path:
        if args.scenario == "submit":
            figures = submit(path, args.n, args.callers)
        elif args.scenario == "bulk":
            figures = bulk(path, args.n)
        elif args.scenario == "idle":
            figures = idle(path, args.n)
        else:
            figures = drain(path, args.n, effect=args.scenario == "drain-effect")
    report("litequeue", args, DURABILITY, figures)


main()
