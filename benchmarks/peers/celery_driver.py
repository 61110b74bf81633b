# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, ARG002
# The library is installed in this driver's own environment only.
"""Drives celery on Redis: acknowledged after the handler, results ignored, a pool of processes.

Invariants: its guide's advice for many short tasks holds: prefetch 64; a job of a mixed load counts as done when its
handler is.
"""

from __future__ import annotations

from contextlib import contextmanager

from celery import Celery

from _peer import main
from _redis import RedisPeer


def application(url: str) -> Celery:
    app = Celery("bench", broker=url)
    app.conf.update(task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=64)
    app.conf.broker_connection_retry_on_startup = True
    return app


class Driver(RedisPeer):
    name = "celery"
    bulk = False
    own_processes = True
    done = "handler"

    def put(self, where, payloads):
        with self.seeding(), self.submitting(where, 1) as submit:
            for payload in payloads:
                submit(payload)

    @contextmanager
    def submitting(self, where, callers):
        app = application(where)
        yield lambda payload: app.send_task("handle", (payload,))
        app.close()

    def work(self, handler):
        app = application(handler.where)

        @app.task(name="handle")
        def handle(payload):
            handler.enter()
            handler.leave(payload)

        handler.ready()
        app.worker_main(["-q", "worker", "--concurrency", str(handler.processes), "--loglevel", "CRITICAL"])

    def rest(self, where):
        return self.server.llen("celery") + self.server.hlen("unacked")


main(Driver())
