# mypy: ignore-errors
# ruff: noqa: ANN001, ANN002, ANN201, ANN202, ARG002
# The library is installed in this driver's own environment only.
"""Drives dramatiq on Redis: eight threads a process, as its command line starts them.

Invariants: a job is done when its acknowledgement has returned.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from _peer import main
from _redis import RedisPeer

QUEUE = "bench"


class Counting(dramatiq.Middleware):
    """Reports each message that has been acknowledged."""

    def __init__(self, handler) -> None:
        self._handler = handler

    def after_ack(self, broker, message):
        self._handler.ended(message.args[0]["amount"])

    after_nack = after_ack


def actor(url, handle, *more):
    broker = RedisBroker(url=url)
    for middleware in more:
        broker.add_middleware(middleware)
    return broker, dramatiq.actor(handle, broker=broker, actor_name="handle", queue_name=QUEUE, max_retries=0)


class Driver(RedisPeer):
    name = "dramatiq"
    setting, settings = "threads", (8,)
    bulk = False

    def put(self, where, payloads):
        with self.seeding(), self.submitting(where, 1) as submit:
            for payload in payloads:
                submit(payload)

    @contextmanager
    def submitting(self, where, callers):
        broker, task = actor(where, lambda payload: None)
        yield task.send
        broker.close()

    def work(self, handler):
        def handle(payload):
            handler.enter()
            handler.leave(payload)

        broker, _ = actor(handler.where, handle, Counting(handler))
        handler.by_commit = True
        handler.ready()
        dramatiq.Worker(broker, worker_threads=handler.setting or 8).start()
        threading.Event().wait()

    def rest(self, where):
        return self.server.hlen(f"dramatiq:{QUEUE}.msgs")


main(Driver())
