# mypy: ignore-errors
# The library is installed in this driver's own environment only.
"""Drives huey on SQLite.

Invariants:
- WAL and synchronous=FULL on every connection, the handler's own included.
- A handler returns None, so huey stores no result: one commit per job, its fastest mode.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

from huey import SqliteHuey

from _common import (
    EFFECTS_TABLE,
    PAYLOAD,
    Stopwatch,
    arguments,
    best,
    by_threads,
    report,
    sample_idle,
    scratch_file,
)
from _worker import POLL_SECONDS

DURABILITY = "WAL, synchronous=FULL"
WORKERS = (1, 4)


def open_queue(path: Path, *, fsync: bool = True) -> SqliteHuey:
    # Contending threads wait in SQLite's busy handler: longer than the default 5 s, so that none fails.
    return SqliteHuey("bench", filename=str(path), fsync=fsync, timeout=60)


def nothing(payload: dict) -> None:
    pass


def drain(url: str, n: int, workers: int, *, effect: bool) -> dict:
    with scratch_file(url) as path:
        queue = open_queue(path)
        seeder = open_queue(path, fsync=False)
        watch = Stopwatch()
        done = threading.Event()
        lock = threading.Lock()
        local = threading.local()
        left = n

        def finished() -> None:
            nonlocal left
            with lock:
                left -= 1
                if left == 0:
                    watch.stop()
                    done.set()

        def handle(payload: dict) -> None:
            if effect:
                if not hasattr(local, "connection"):
                    local.connection = sqlite3.connect(path, isolation_level=None, timeout=60)
                    local.connection.execute("PRAGMA synchronous=FULL")
                local.connection.execute("INSERT INTO effects VALUES (?, ?)", (payload["order"], payload["amount"]))
            finished()

        task = queue.task(name="handle")(handle)
        seed = seeder.task(name="handle")(nothing)
        if effect:
            queue.storage.conn.execute(EFFECTS_TABLE)
        for _ in range(n):
            seed(PAYLOAD)
        seeder.storage.close()
        consumer = queue.create_consumer(workers=workers, periodic=False, initial_delay=POLL_SECONDS, backoff=1)
        watch.start()
        consumer.start()
        done.wait()
        consumer.stop(graceful=True)
        if effect:
            (count,) = queue.storage.conn.execute("SELECT count(*) FROM effects").fetchone()
            if count != n:
                raise SystemExit(f"{count} effects of {n} jobs by {task}")
        queue.storage.close()
    return {"setting": f"threads={workers}", "concurrency": workers, **watch.figures(n)}


def idle(url: str, n: int) -> dict:
    with scratch_file(url) as path:
        queue = open_queue(path)
        task = queue.task(name="handle")(nothing)

        async def submit() -> None:
            task(PAYLOAD)

        figures = asyncio.run(sample_idle("huey", str(path), n, submit))
        queue.storage.close()
    return {"poll_ms": POLL_SECONDS * 1000, **figures}


def submit(url: str, n: int, callers: int) -> dict:
    with scratch_file(url) as path:
        queue = open_queue(path)
        task = queue.task(name="handle")(nothing)
        task(PAYLOAD)  # Opens the connection.
        figures = by_threads(n, callers, lambda: task(PAYLOAD))
        if queue.storage.queue_size() != n + 1:
            raise SystemExit("lost submissions")
        queue.storage.close()
    return figures


def main() -> None:
    args = arguments()
    if args.scenario == "submit":
        figures = submit(args.url, args.n, args.callers)
    elif args.scenario == "bulk":
        figures = {"per_second": None}  # `task.map` enqueues one by one.
    elif args.scenario == "idle":
        figures = idle(args.url, args.n)
    else:
        figures = best(
            drain(args.url, args.n, workers, effect=args.scenario == "drain-effect")
            for workers in ((args.concurrency,) if args.concurrency else WORKERS)
        )
    report("huey", args, DURABILITY, figures)


main()
