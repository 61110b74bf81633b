# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ARG002
# The library is installed in this driver's own environment only.
"""Drives litequeue: a worker is a loop, as in its README.

Invariants:
- It sets synchronous=NORMAL; the driver forces FULL on every connection.
- It refuses a database with other tables, so effects go to a second file, with FULL too.
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import contextmanager

from litequeue import LiteQueue

from _peer import EFFECTS_TABLE, POLL_SECONDS, DeliberateError, Peer, file_usage, main, scratch_file


def open_queue(path: str) -> LiteQueue:
    queue = LiteQueue(path, timeout=60)
    queue.conn.execute("PRAGMA synchronous=FULL")
    return queue


def open_effects(path: str) -> sqlite3.Connection:
    effects = sqlite3.connect(path.replace("queue.db", "effects.db"), isolation_level=None, timeout=60)
    effects.execute("PRAGMA journal_mode=WAL")
    effects.execute("PRAGMA synchronous=FULL")
    return effects


class Driver(Peer):
    name = "litequeue"
    durability = "WAL, synchronous=FULL (forced; its default is NORMAL)"

    @contextmanager
    def scratch(self, base):
        with scratch_file(base) as path:
            open_effects(str(path)).execute(EFFECTS_TABLE)
            yield str(path)

    def put(self, where, payloads):
        queue = open_queue(where)
        with queue.transaction("IMMEDIATE"):
            for payload in payloads:
                queue.put(json.dumps(payload))
        queue.close()

    @contextmanager
    def submitting(self, where, callers):
        queue = open_queue(where)
        yield lambda payload: queue.put(json.dumps(payload))

    def work(self, handler):
        queue, effects = open_queue(handler.where), open_effects(handler.where)
        handler.by_commit = True
        handler.ready()
        while True:
            message = queue.pop()
            if message is None:
                time.sleep(POLL_SECONDS)
                continue
            handler.enter()
            payload = json.loads(message.data)
            if handler.effect:
                effects.execute("INSERT INTO effects VALUES (?, ?)", (payload["order"], payload["amount"]))
            try:
                handler.leave(payload)
                queue.done(message.message_id, claim_id=message.claim_id)
            except DeliberateError:
                queue.mark_failed(message.message_id, claim_id=message.claim_id)
            handler.ended(payload["amount"])

    def rest(self, where):
        with sqlite3.connect(where, timeout=60) as connection:
            # 0 is ready, 1 is locked
            return connection.execute("SELECT count(*) FROM Queue WHERE status IN (0, 1)").fetchone()[0]

    def effects(self, where):
        return open_effects(where).execute("SELECT count(*) FROM effects").fetchone()[0]

    def usage(self, where):
        return file_usage(where)


main(Driver())
