# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, ARG001, ARG002, SLF001
# The library is installed in this driver's own environment only.
"""Drives absurd over its synchronous client; a task has no steps, so its run is the one checkpoint.

Invariants: a job is done when the call that completes its run has returned; its worker polls every 0.25 s by default,
which stays.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager

import absurdctl
import psycopg
from absurd_sdk import Absurd

from _peer import main
from _pg import INSERT_EFFECT, PostgresPeer

QUEUE = "bench"


class Driver(PostgresPeer):
    name, distribution = "absurd", "absurd-sdk"
    settings = (1, 10)
    bulk = False  # tasks are spawned one by one
    rest_query = f"SELECT count(*) FROM absurd.t_{QUEUE} WHERE state IN ('pending', 'running', 'sleeping')"

    def install(self, url):
        self.one(url, absurdctl.BUNDLED_SCHEMA_SQL)
        Absurd(url, queue_name=QUEUE).create_queue()

    def put(self, where, payloads):
        with psycopg.connect(where) as connection:  # one transaction
            app = Absurd(connection, queue_name=QUEUE)
            for payload in payloads:
                app.spawn("handle", payload, queue=QUEUE, max_attempts=1)

    @contextmanager
    def submitting(self, where, callers):
        local = threading.local()

        def submit(payload):
            if not hasattr(local, "app"):
                local.app = Absurd(where, queue_name=QUEUE)
            local.app.spawn("handle", payload, queue=QUEUE, max_attempts=1)

        yield submit

    def work(self, handler):
        app = Absurd(handler.where, queue_name=QUEUE)
        local = threading.local()

        @app.register_task(name="handle")
        def handle(params, context):
            handler.enter()
            if handler.effect:
                if not hasattr(local, "connection"):
                    local.connection = psycopg.connect(handler.where, autocommit=True)
                local.connection.execute(INSERT_EFFECT, (params["order"], params["amount"]))
            local.number = params["amount"]
            handler.leave(params)

        execute = app._execute_task

        def execute_and_count(task, claim_timeout):
            execute(task, claim_timeout)  # completes or fails the run
            handler.ended(local.number)

        app._execute_task = execute_and_count
        handler.by_commit = True
        handler.ready()
        app.start_worker(concurrency=handler.setting or 1)


main(Driver())
