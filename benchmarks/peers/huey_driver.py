# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ARG002
# The library is installed in this driver's own environment only.
"""Drives huey on SQLite.

Invariants:
- WAL and synchronous=FULL on every connection, the handler's own included.
- A handler returns None, so huey stores no result: one commit per job, its fastest mode. A job leaves the queue when it
  is taken, so it is done when its handler is.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager

from huey import SqliteHuey

from _peer import EFFECTS_TABLE, POLL_SECONDS, Peer, file_usage, main, scratch_file


def open_queue(path: str, *, fsync: bool = True) -> SqliteHuey:
    # Contending threads wait in SQLite's busy handler: longer than the default 5 s, so that none fails.
    return SqliteHuey("bench", filename=path, fsync=fsync, timeout=60)


def nothing(payload: dict) -> None:
    pass


class Driver(Peer):
    name = "huey"
    durability = "WAL, synchronous=FULL"
    setting, settings = "threads", (1, 4)
    bulk = False  # `task.map` enqueues one by one
    done = "handler"

    @contextmanager
    def scratch(self, base):
        with scratch_file(base) as path:
            open_queue(str(path)).storage.conn.execute(EFFECTS_TABLE)
            yield str(path)

    def put(self, where, payloads):
        queue = open_queue(where, fsync=False)
        task = queue.task(name="handle")(nothing)
        for payload in payloads:
            task(payload)
        queue.storage.close()

    @contextmanager
    def submitting(self, where, callers):
        queue = open_queue(where)
        yield queue.task(name="handle")(nothing)
        queue.storage.close()

    def work(self, handler):
        queue = open_queue(handler.where)
        local = threading.local()

        def handle(payload: dict) -> None:
            handler.enter()
            if handler.effect:
                if not hasattr(local, "connection"):
                    local.connection = sqlite3.connect(handler.where, isolation_level=None, timeout=60)
                    local.connection.execute("PRAGMA synchronous=FULL")
                local.connection.execute("INSERT INTO effects VALUES (?, ?)", (payload["order"], payload["amount"]))
            handler.leave(payload)

        queue.task(name="handle")(handle)
        handler.ready()
        queue.create_consumer(
            workers=handler.setting or 1, periodic=False, initial_delay=POLL_SECONDS, backoff=1, max_delay=POLL_SECONDS
        ).run()

    def rest(self, where):
        return open_queue(where).storage.queue_size()

    def effects(self, where):
        return open_queue(where).storage.conn.execute("SELECT count(*) FROM effects").fetchone()[0]

    def usage(self, where):
        return file_usage(where)


main(Driver())
