# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, ARG002
# The library is installed in this driver's own environment only.
"""Drives DBOS Transact: workflows without steps on a registered queue, enqueued by its client.

Invariants: the queue has its default settings (it polls every second); a job of a mixed load counts as done when its
workflow function is.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager

import psycopg
from dbos import DBOS, DBOSClient
from sqlalchemy import create_engine

from _peer import main
from _pg import INSERT_EFFECT, PostgresPeer

QUEUE = "bench"
OPTIONS = {"workflow_name": "handle", "queue_name": QUEUE}


def launch(url: str) -> None:
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "CRITICAL", "application_version": "1"})
    DBOS.launch()
    DBOS.register_queue(QUEUE)


class Driver(PostgresPeer):
    name = "dbos"
    bulk = False  # workflows are enqueued one by one
    done = "handler"
    rest_query = "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED')"

    def install(self, url):
        launch(url)
        DBOS.destroy()

    def put(self, where, payloads):
        with self.submitting(where, 1) as submit:
            engine = create_engine(where.replace("postgresql://", "postgresql+psycopg://"))
            with engine.begin() as connection:  # one transaction
                for payload in payloads:
                    submit.client.enqueue_in_transaction(connection, OPTIONS, payload)
            engine.dispose()

    @contextmanager
    def submitting(self, where, callers):
        client = DBOSClient(system_database_url=where)

        def submit(payload):
            client.enqueue(OPTIONS, payload)

        submit.client = client
        yield submit
        client.destroy()

    def work(self, handler):
        local = threading.local()

        @DBOS.workflow(name="handle")
        def handle(payload):
            handler.enter()
            if handler.effect:
                if not hasattr(local, "connection"):
                    local.connection = psycopg.connect(handler.where, autocommit=True)
                local.connection.execute(INSERT_EFFECT, (payload["order"], payload["amount"]))
            handler.leave(payload)

        handler.ready()
        launch(handler.where)
        threading.Event().wait()


main(Driver())
