"""Watching the writes of other processes: what wakes a sleeping worker."""

from __future__ import annotations

import select
import sqlite3
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from holdfast import Ledger
from holdfast.core.errors import StoreUnavailableError
from holdfast.engine.worker.bell import Bell
from holdfast.store import Store
from holdfast.store.postgres import watch as postgres_watch
from holdfast.store.postgres.connection import NOTIFY_TEXT
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite import watch as sqlite_watch
from holdfast.store.sqlite.poll import PERIOD_S
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.watch import Watch

PATIENCE_S = 20.0


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    with Ledger(ledger_url) as ledger:
        ledger.submit("noop")
        yield ledger


@pytest.fixture
def watch(ledger: Ledger) -> Iterator[Watch]:
    with closing(ledger.store.watch()) as watch:
        settle(watch)
        yield watch


def settle(watch: Watch) -> None:
    """Look until nothing more is noticed."""
    quiet = 0
    while quiet < 5:
        watch.fileno()
        quiet = 0 if watch.changed() else quiet + 1
        time.sleep(0.01)


def noticed(watch: Watch, wait_s: float = PATIENCE_S) -> bool:
    """Sleep as a worker does; return whether the watch ended the sleep."""
    bell = Bell()
    try:
        return bell.sleep(wait_s, lambda: False, watch)
    finally:
        bell.close()


def test_a_submit_of_another_process_ends_the_sleep(ledger_url: str, watch: Watch) -> None:
    with Ledger(ledger_url) as other:
        for _ in range(3):
            other.submit("noop")
            assert noticed(watch)
            settle(watch)
    assert not noticed(watch, 0.05)


def test_a_submit_in_the_callers_own_transaction_ends_the_sleep(ledger: Ledger, watch: Watch) -> None:
    url = ledger.store.url
    connection: Any
    if url.startswith("postgres"):
        connection = psycopg.connect(url)
    else:
        connection = sqlite3.connect(cast("SqliteStore", ledger.store).path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
    with closing(connection):
        ledger.submit("noop", connection=connection)
        assert not noticed(watch, 0.05)
        connection.commit()
        assert noticed(watch)


def test_a_change_before_the_sleep_is_noticed_at_once(ledger: Ledger, watch: Watch) -> None:
    if watch.fileno() is None:
        watch.changed()
    with Ledger(ledger.store.url) as other:
        other.submit("noop")
    time.sleep(0.1)
    began = time.monotonic()
    assert noticed(watch)
    assert time.monotonic() - began < PATIENCE_S / 2


# -- SQLite -----------------------------------------------------------------------------------------------------------


def sqlite_watch_of(store: Store[Any]) -> Watch:
    return sqlite_watch.log_watch(cast("SqliteStore", store).path)


def test_without_inotify_the_log_is_looked_at(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "other")
    with Ledger(sqlite_url) as ledger:
        ledger.submit("noop")
        watch = sqlite_watch_of(ledger.store)
        assert (watch.fileno(), watch.period_s) == (None, PERIOD_S)
        time.sleep(0.05)  # the clock of a file system is coarse
        assert not noticed(watch, 0.05)
        ledger.submit("noop")
        assert noticed(watch)
        watch.close()


def test_a_log_that_was_removed_and_made_again_is_watched(sqlite_url: str) -> None:
    with Ledger(sqlite_url) as ledger:
        ledger.submit("noop")
        path = cast("SqliteStore", ledger.store).path
    log = Path(f"{path}-wal")
    assert not log.exists()
    with closing(sqlite_watch.log_watch(path)) as watch:
        assert not noticed(watch, 0.01)  # there is no log
        with Ledger(sqlite_url) as other:
            other.submit("noop")
            settle(watch)
            other.submit("noop")
            assert noticed(watch)


def test_a_watch_opens_no_file_of_the_ledger(sqlite_url: str) -> None:
    """Closing any file of the ledger would drop the locks that SQLite holds on it in this process."""
    with Ledger(sqlite_url) as ledger:
        ledger.submit("noop")
        before = opened(sqlite_url)
        with closing(ledger.store.watch()) as watch:
            watch.fileno()
            watch.changed()
            assert opened(sqlite_url) == before


def opened(url: str) -> int:
    return sum(Path(url).name in str(link.resolve()) for link in Path("/proc/self/fd").iterdir())


def test_an_idle_watch_costs_nothing(sqlite_url: str) -> None:
    with Ledger(sqlite_url) as ledger:
        ledger.submit("noop")
        with closing(ledger.store.watch()) as watch:
            settle(watch)
            before = time.process_time()
            assert not noticed(watch, 0.5)
            assert time.process_time() - before < 0.05


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


def test_a_watch_that_lost_its_connection_reconnects_and_looks(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger, closing(ledger.store.watch()) as watch:
        ledger.submit("noop")
        settle(watch)
        with psycopg.connect(new_postgres_ledger, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'holdfast' AND datname = current_database()"
            )
        assert noticed(watch)  # what was announced meanwhile is not known
        settle(watch)
        with Ledger(new_postgres_ledger) as other:
            other.submit("noop")
        assert noticed(watch)


def test_a_watch_that_cannot_connect_tries_again_after_a_pause(
    new_postgres_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_watch, "RETRY_S", 30)
    at = time.monotonic()
    monkeypatch.setattr(postgres_watch, "time", SimpleNamespace(monotonic=lambda: at))
    tries = 0

    def connect() -> Any:
        nonlocal tries
        tries += 1
        raise StoreUnavailableError("no server")

    with Ledger(new_postgres_ledger) as ledger:
        watch = ledger.store.watch()
        monkeypatch.setattr(ledger.store, "take", connect)
        assert [watch.changed(), watch.changed()] == [False, False]
        assert (tries, watch.fileno(), watch.period_s) == (1, None, 30)
        at += 31
        assert watch.changed() is False
        assert tries == 2
        watch.close()


CONNECTIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast' AND datname = current_database()"
)


def test_a_thread_listens_on_the_connection_on_which_it_writes(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger:
        ledger.submit("noop")
        with closing(ledger.store.watch()) as watch:
            settle(watch)
            listening = watch.fileno()
            with ledger.store.transaction() as transaction:
                assert transaction.connection.fileno() == listening
                assert transaction.execute("SELECT pg_listening_channels()") == [("holdfast_public",)]
                assert transaction.execute(CONNECTIONS) == [(1,)]
                with ledger.store.reading() as reading:  # a second one at the same time
                    assert reading.connection.fileno() != listening
            with ThreadPoolExecutor() as threads:  # another thread gets another one

                def used() -> int:
                    with ledger.store.glance() as reading:
                        return int(reading.connection.fileno())

                assert threads.submit(used).result() != listening
            assert watch.fileno() == listening
            ledger.submit("noop")
            assert noticed(watch)
        with ledger.store.transaction() as transaction:  # it is an ordinary connection again
            assert transaction.connection.fileno() == listening
            assert transaction.execute("SELECT pg_listening_channels()") == []


def test_what_is_notified_while_the_connection_is_used_is_noticed_after_that(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger, closing(ledger.store.watch()) as watch:
        settle(watch)
        for _ in range(2):  # by a transaction, and by a statement that is sent below psycopg
            with psycopg.connect(new_postgres_ledger, autocommit=True) as other, ledger.store.transaction() as session:
                other.execute("NOTIFY holdfast_public, 'default'")
                session.execute("SELECT 1")
            assert watch.changed()
            assert not watch.changed()
        connection = ledger.store.take()
        ledger.store.pool.give(connection, sound=True)
        with psycopg.connect(new_postgres_ledger, autocommit=True) as other:
            other.execute("NOTIFY holdfast_public, 'default'")
        connection.command("SELECT 1")
        assert watch.changed()
        assert not watch.changed()


def test_a_session_that_an_effect_has_changed_listens_again(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger, closing(ledger.store.watch()) as watch:
        settle(watch)
        with ledger.store.transaction() as transaction:
            assert cast("PostgresStore", ledger.store).reset_session(transaction.connection)
        assert watch.changed()
        settle(watch)
        with Ledger(new_postgres_ledger) as other:
            other.submit("noop")
        assert noticed(watch)


def test_polling_is_possible_on_what_fileno_returns(watch: Watch) -> None:
    file = watch.fileno()
    if file is not None:
        poll = select.poll()
        poll.register(file, select.POLLIN)
        assert poll.poll(0) == []


def test_an_announcement_waits_for_no_sync_and_a_submit_does(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger, closing(ledger.store.watch()) as watch:
        settle(watch)
        ledger.submit("noop")
        assert noticed(watch)
        # The answer to the announcement is still to be read; the next user of the connection reads it first.
        with ledger.store.transaction() as transaction:
            assert transaction.execute("SHOW synchronous_commit") == [("on",)]
        with psycopg.connect(new_postgres_ledger) as connection:
            connection.execute(NOTIFY_TEXT.replace("$1", "'channel'").replace("$2", "'{q}'"))
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
            connection.rollback()
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_an_announcement_whose_statement_was_discarded_loses_no_job(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger, closing(ledger.store.watch()) as watch:
        ledger.submit("noop")
        settle(watch)
        with ledger.store.transaction() as transaction:
            transaction.execute("DEALLOCATE ALL")
        ledger.submit("noop")  # prepares its statement again
        settle(watch)
        ledger.submit("noop")
        assert noticed(watch)
        assert sum(count.n for count in ledger.counts()) == 3


def test_a_connection_that_is_lost_after_an_announcement_is_replaced(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger:
        ledger.submit("noop")
        with psycopg.connect(new_postgres_ledger, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'holdfast' AND datname = current_database()"
            )
        time.sleep(0.1)
        assert ledger.submit("noop").is_new
        assert sum(count.n for count in ledger.counts()) == 2
