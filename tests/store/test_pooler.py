"""A ledger behind PgBouncer in transaction mode: it notices, uses nothing of a session, and says so.

The tests behind a real PgBouncer run where it is installed; in the others, which always run, a pooler is imitated.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any, cast

import psycopg
import pytest

from holdfast import Ledger, Worker
from holdfast.audit.check.runner import check
from holdfast.core.errors import ConfigurationError
from holdfast.store import open_store
from holdfast.store.postgres import session
from holdfast.store.postgres.store import PostgresStore
from tests.support.pgbouncer import PGBOUNCER, Pooler
from tests.support.roles import wait_until

SUBMITTERS, JOBS = 4, 25
pytestmark = pytest.mark.attack("faults")


@pytest.fixture
def pooled_url(new_postgres_ledger: str) -> Iterator[str]:
    with Pooler(new_postgres_ledger) as pooler:
        yield pooler.url


def submit_all(ledger: Ledger, number: int) -> None:
    for job in range(JOBS):
        ledger.submit("noop", {"job": job}, client="test", key=f"{number} {job}")


def run_in_threads(ledgers: list[Ledger]) -> None:
    threads = [threading.Thread(target=submit_all, args=(ledger, number)) for number, ledger in enumerate(ledgers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def succeeded(ledger: Ledger) -> int:
    return sum(count.n for count in ledger.counts() if count.state == "succeeded")


if PGBOUNCER is not None:  # where it is not installed, the end of the run says so

    def test_submitters_and_a_worker_share_few_sessions_of_the_server(
        pooled_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        ledgers = [Ledger(pooled_url) for _ in range(SUBMITTERS)]
        worker = Worker(ledgers[0], poll_s=0.1)
        with caplog.at_level(logging.WARNING, "holdfast"):
            running = threading.Thread(target=worker.run)
            running.start()
            run_in_threads(ledgers)
            wait_until(lambda: succeeded(ledgers[0]) == SUBMITTERS * JOBS, 60, "all done")
            worker.stop()
            running.join(60)
        assert all(cast("PostgresStore", ledger.store).pooled for ledger in ledgers)
        said = [record for record in caplog.records if "pooler" in record.getMessage()]
        assert len(said) == SUBMITTERS  # one line for each ledger that was opened
        assert [record for record in caplog.records if record not in said] == []
        for ledger in ledgers:
            ledger.close()
        with open_store(pooled_url) as store:
            assert not check(store).violations

    def test_other_clients_of_the_pooler_find_their_sessions_as_they_were(pooled_url: str) -> None:
        names = ("search_path", "synchronous_commit", "lock_timeout", "random_page_cost", "TimeZone")
        query = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
        with psycopg.connect(pooled_url, prepare_threshold=None) as other:
            before = other.execute(query).fetchone()
            other.commit()
            with Ledger(pooled_url) as ledger:
                run_in_threads([ledger] * 2)
                ledger.run_until_idle()
                for _ in range(6):
                    assert other.execute(query).fetchone() == before
                    prepared = other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
                    listening = other.execute("SELECT count(*) FROM pg_listening_channels()").fetchone()
                    other.commit()
                    assert (prepared, listening) == ((0,), (0,))

    def test_a_ledger_is_created_and_used_in_a_schema_of_its_own_behind_a_pooler(pg_url: str) -> None:
        with psycopg.connect(pg_url, autocommit=True) as owner:
            owner.execute('CREATE SCHEMA "of its own"')
            owner.execute(f"ALTER DATABASE \"{owner.info.dbname}\" SET default_transaction_isolation = 'serializable'")
            owner.execute(f'ALTER DATABASE "{owner.info.dbname}" SET default_transaction_read_only = on')
            owner.execute(f"ALTER DATABASE \"{owner.info.dbname}\" SET DateStyle = 'SQL, DMY'")
        with Pooler(pg_url) as pooler, Ledger(pooler.url, schema="of its own") as ledger:
            run_in_threads([ledger] * 2)
            assert ledger.run_until_idle() == 2 * JOBS
            with ledger.store.reading() as reading:
                assert reading.execute("SELECT count(*) FROM holdfast_jobs") == [(2 * JOBS,)]

    def test_a_handlers_effects_and_a_callers_transaction_behind_a_pooler(pooled_url: str) -> None:
        with psycopg.connect(pooled_url, prepare_threshold=None) as own, Ledger(pooled_url) as ledger:
            own.execute("CREATE TABLE done (n integer)")
            own.commit()

            @ledger.operation("insert")
            def insert(run: Any, n: int) -> None:
                run.effect("INSERT INTO done VALUES (:n)", {"n": n}, rows=1)

            for n in range(8):
                ledger.submit(insert.call(n=n), client="test", key=str(n), connection=own)
            own.commit()
            ledger.run_until_idle()
            assert own.execute("SELECT count(*), count(DISTINCT n) FROM done").fetchone() == (8, 8)

    def test_a_lock_that_a_failed_effect_took_for_its_session_is_left_on_no_session(new_postgres_ledger: str) -> None:
        with Pooler(new_postgres_ledger, turns=True) as pooler, Ledger(pooler.url) as ledger:

            @ledger.operation("lock", max_attempts=1)
            def lock(run: Any, *, fails: bool) -> None:
                run.effect("SELECT pg_advisory_lock(4711)")
                if fails:
                    run.effect("SELECT 1 / 0")

            clients = [psycopg.connect(pooler.url, prepare_threshold=None) for _ in range(3)]
            for step in (psycopg.Connection.execute, psycopg.Connection.commit):  # now the server has three sessions
                for client in clients:
                    step(client, *(["SELECT 1"] if step is psycopg.Connection.execute else []))
            receipts = ledger.submit_many([lock.call(fails=fails) for fails in (True, False, True)])
            ledger.run_until_idle()
            assert [ledger.job(one.job_id).state.value for one in receipts] == ["failed", "succeeded", "failed"]
            with psycopg.connect(new_postgres_ledger) as direct:
                left = direct.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
            for client in clients:
                client.close()
        assert left == (0,)

    @pytest.mark.parametrize("mode", ["session", "transaction"])
    def test_a_pooler_in_session_mode_can_be_declared_and_the_declaration_is_tried(
        new_postgres_ledger: str, monkeypatch: pytest.MonkeyPatch, mode: str
    ) -> None:
        monkeypatch.setenv("HOLDFAST_POOLER", "session")
        with Pooler(new_postgres_ledger, size=8, mode=mode) as pooler:
            if mode == "transaction":
                with pytest.raises(ConfigurationError) as refused:
                    open_store(pooler.url)
                assert refused.value.context == {"setting": "pooler", "pool_mode": "transaction"}
                return
            with Ledger(pooler.url) as ledger:
                submit_all(ledger, 0)
                assert ledger.run_until_idle() == JOBS
                store = cast("PostgresStore", ledger.store)
                assert not store.pooled
                watch = store.watch()
                assert not isinstance(watch, session.NoWatch)
                watch.close()


# -- everywhere: a connection with another server process than the client's -----------------------------


@pytest.fixture
def imitated(monkeypatch: pytest.MonkeyPatch) -> None:
    real = session.facts
    monkeypatch.setattr(
        "holdfast.store.postgres.session.facts", lambda connection: real(connection)._replace(pooled=True)
    )


def test_a_server_process_that_is_not_the_one_of_the_connection_means_a_pooler(new_postgres_ledger: str) -> None:
    with psycopg.connect(new_postgres_ledger) as connection:
        assert not session.facts(connection).pooled


@pytest.mark.usefixtures("imitated")
def test_behind_a_pooler_nothing_of_a_session_is_set_prepared_or_listened_to(new_postgres_ledger: str) -> None:
    with Ledger(new_postgres_ledger) as ledger:
        run_in_threads([ledger] * 2)
        ledger.run_until_idle()
        store = cast("PostgresStore", ledger.store)
        assert isinstance(store.watch(), session.NoWatch)
        connection = store.take()
        try:
            for query, expected in (
                ("SELECT count(*) FROM pg_prepared_statements", "0"),
                ("SELECT count(*) FROM pg_listening_channels()", "0"),
                ("SELECT current_setting('search_path')", '"$user", public'),
                ("SELECT current_setting('lock_timeout')", "0"),
                ("SELECT current_setting('transaction_isolation')", "read committed"),
            ):
                assert str(cast("tuple[object]", connection.execute(query).fetchone())[0]) == expected
        finally:
            connection.rollback()
            store.pool.give(connection, sound=True)


@pytest.mark.usefixtures("imitated")
def test_behind_a_pooler_each_transaction_has_what_it_needs(new_postgres_ledger: str) -> None:
    query = "SELECT current_setting('search_path'), current_setting('lock_timeout'), current_setting('DateStyle')"
    with open_store(new_postgres_ledger) as store:
        for opened in (store.transaction, store.alone, store.reading):
            with opened() as transaction:
                assert transaction.execute(query) == [("public", "5s", "ISO, MDY")]
