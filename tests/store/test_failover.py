"""A database falls back to an earlier state while workers of the later one still run: their writes are refused.

Execution ids repeat after such a failover, and with a clock that was set back even the tokens do; the owner differs.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from holdfast import Ledger, Worker
from holdfast.core.commands import Complete
from holdfast.core.decide import Move, Refused
from holdfast.core.errors import LedgerFileError
from holdfast.core.records import Attempt
from holdfast.store import Lease, Store, Submission, create_store, open_store
from tests.support.postgres import Server
from tests.support.roles import wait_until

pytestmark = pytest.mark.attack("faults")
AT = datetime(2026, 11, 16, 12, tzinfo=UTC)


def clock() -> datetime:
    return AT


def kept_copy(url: str) -> Callable[[], None]:
    """Keep the present state of a ledger that is not open; return what puts that state back in its place."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        copy = path.with_name("earlier.db")
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)

        def file_back() -> None:
            for suffix in ("-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            copy.rename(path)

        return file_back
    at, _, name = url.rpartition("/")
    with psycopg.connect(f"{at}/postgres", autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*map(sql.Identifier, (f"{name}_then", name))))

    def database_back() -> None:
        with psycopg.connect(f"{at}/postgres", autocommit=True) as admin:
            admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
            ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            wait_until(lambda: not admin.execute(ends, (name,)).fetchall(), 30, "no connection is left")
            for before, after in ((name, f"{name}_lost"), (f"{name}_then", name)):
                admin.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(*map(sql.Identifier, (before, after))))

    return database_back


def claimed(store: Store[Any], owner: str) -> Attempt:
    with store.transaction() as transaction:
        [attempt] = transaction.executions.claim(Lease(owner=owner, seconds=30))
    return attempt


def completed(store: Store[Any], attempt: Attempt, owner: str) -> Move | Refused:
    with store.transaction() as transaction:
        [answer] = transaction.executions.move([(attempt, Complete(attempt.execution.lease_token))], actor=owner)
    return answer


def drop_copies(url: str) -> None:
    at, _, name = url.rpartition("/")
    with psycopg.connect(f"{at}/postgres", autocommit=True) as admin:
        for end in ("_lost", "_then"):
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(f"{name}{end}")))


def test_a_worker_of_the_lost_state_cannot_end_an_attempt_with_the_same_id_and_token(
    ledger_url: str,
) -> None:
    with open_store(ledger_url, clock) as store, store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}")], actor="client-1")
    fail_over = kept_copy(ledger_url)
    with open_store(ledger_url, clock) as old:
        lost = claimed(old, "worker-1")
        fail_over()
        with open_store(ledger_url, clock) as new:
            held = claimed(new, "worker-2")
            assert held.execution.exec_id == lost.execution.exec_id
            assert held.execution.lease_token == lost.execution.lease_token
            if ledger_url.startswith("sqlite"):  # the store that was open has noticed that its file is another one
                with pytest.raises(LedgerFileError):
                    completed(old, lost, "worker-1")
            with open_store(ledger_url, clock) as restarted:
                answer = completed(restarted if ledger_url.startswith("sqlite") else old, lost, "worker-1")
            assert isinstance(answer, Refused)
            assert answer.code == "lease_lost"
            assert isinstance(completed(new, held, "worker-2"), Move)
    if ledger_url.startswith("postgresql"):
        drop_copies(ledger_url)


def test_workers_of_both_states_do_the_work_once(new_postgres_ledger: str) -> None:
    url = new_postgres_ledger
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE done (worker text)")
    with Ledger(url) as ledger:
        ledger.operation("pay")(lambda run: None)
        ledger.submit("pay", {}, client="test", key="1")
    fail_over = kept_copy(url)
    inside, leave = threading.Event(), threading.Event()
    ledgers = {name: Ledger(url) for name in ("old", "new")}
    for name, ledger in ledgers.items():

        def pay(run: Any, name: str = name) -> None:
            if name == "old":
                inside.set()
                leave.wait(60)
            run.effect("INSERT INTO done VALUES (:name)", {"name": name}, rows=1)

        ledger.operation("pay")(pay)
    worker = Worker(ledgers["old"], poll_s=0.1, concurrency=1)  # its one slot is taken, so it claims nothing else
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        assert inside.wait(60)
        fail_over()
        ledgers["new"].run_until_idle()
    finally:
        leave.set()
        worker.stop()
        running.join(60)
    wait_until(lambda: ledgers["new"].job(1).state == "succeeded", 30, "the job has ended")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT worker FROM done").fetchall() == [("new",)]
    for ledger in ledgers.values():
        ledger.close()
    drop_copies(url)


def test_another_database_or_timeline_behind_the_url_is_reported(
    new_postgres_ledger: str, caplog: pytest.LogCaptureFixture
) -> None:
    fail_over = kept_copy(new_postgres_ledger)
    with open_store(new_postgres_ledger) as store, caplog.at_level(logging.WARNING, "holdfast"):
        fail_over()
        for _ in range(2):
            with store.reading() as reading:
                reading.settings.read()
        [said] = caplog.records
        assert said.name == "holdfast"
    drop_copies(new_postgres_ledger)


@pytest.mark.pg
def test_a_recovery_to_another_timeline_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with Server(settings={"restore_command": "false"}) as server:
        url = server.create_database()
        with create_store(url) as store, caplog.at_level(logging.WARNING, "holdfast"):
            server.stop()
            (server.data / "recovery.signal").touch()  # as after a recovery from a base backup
            shutil.chown(server.data / "recovery.signal", *owner(server.data))
            server.start()
            wait_until(lambda: timeline(url) == 2, 30, "the recovery has ended with a checkpoint")
            with store.reading() as reading:
                reading.settings.read()
            [said] = caplog.records
            assert "timeline 1 -> 2" in said.getMessage()


def timeline(url: str) -> int:
    with psycopg.connect(url) as session:
        [[number]] = session.execute("SELECT timeline_id FROM pg_control_checkpoint()")
    return int(number)


def owner(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_gid
