"""Settings of a role or a database on PostgreSQL that a session begins with: none gives a raw error or false drift."""

from __future__ import annotations

import re

import psycopg
import pytest

from holdfast import Ledger
from holdfast.audit.check.runner import check
from holdfast.store import open_store
from holdfast.store.statements import generated

pytestmark = pytest.mark.attack("faults")
SETTINGS = (
    "DateStyle = 'SQL, DMY'",
    "DateStyle = 'German'",
    "IntervalStyle = 'sql_standard'",
    "quote_all_identifiers = on",
    "default_transaction_isolation = 'serializable'",
    "default_transaction_isolation = 'repeatable read'",
    "default_transaction_read_only = on",
    "default_transaction_deferrable = on",
    "TimeZone = 'Asia/Kathmandu'",
    "standard_conforming_strings = off",
    "search_path = 'nowhere'",
    "search_path = 'pg_temp, pg_catalog'",
    "statement_timeout = '300ms'",
    "extra_float_digits = -15",
    "array_nulls = off",
    "transform_null_equals = on",
    "bytea_output = 'escape'",
    "client_encoding = 'LATIN1'",
    "plan_cache_mode = force_generic_plan",
    "lock_timeout = '10ms'",
    "row_security = off",
    "backslash_quote = off",
    "lc_messages = 'C'",
)
ALL = ("DateStyle = 'SQL, DMY'", *SETTINGS[2:4], *SETTINGS[4:19:2])


def set_default(url: str, *settings: str) -> None:
    """Make settings the default of every new session of a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only TO off")
        for setting in settings:
            connection.execute(f'ALTER DATABASE "{connection.info.dbname}" SET {setting}')


def used(ledger: Ledger, *, long: bool) -> None:
    """Submit, run, read and check; `long` runs a statement for longer than a statement_timeout that is not ours."""

    @ledger.operation("measure")
    def measure(run: object, text: str) -> dict[str, object]:
        return {"text": text, "number": 0.1 + 0.2}

    receipt = ledger.submit(measure.call(text="a\\b 'c' ü日\n"), client="test", key="k\\1")
    if long:
        with ledger.store.transaction() as transaction:
            transaction.execute("SELECT 1 FROM pg_sleep(0.4)")
    ledger.run_until_idle()
    job = receipt.wait(20)
    assert job.result == {"text": "a\\b 'c' ü日\n", "number": 0.1 + 0.2}
    assert not ledger.submit(measure.call(text="a\\b 'c' ü日\n"), client="test", key="k\\1").is_new


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_default_of_the_database_changes_nothing(new_postgres_ledger: str, setting: str) -> None:
    set_default(new_postgres_ledger, setting)
    with Ledger(new_postgres_ledger) as ledger:
        used(ledger, long="timeout" in setting)
    with open_store(new_postgres_ledger) as store:
        assert not check(store).violations


def test_a_ledger_is_created_under_odd_defaults_and_opened_under_plain_ones(pg_url: str) -> None:
    set_default(pg_url, *ALL)
    with Ledger(pg_url) as ledger:
        used(ledger, long=True)
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only TO off")
        connection.execute(f'ALTER DATABASE "{connection.info.dbname}" RESET ALL')
    with open_store(pg_url) as store:
        assert not check(store).violations


ODD_SESSION = (
    "SET DateStyle TO 'SQL, DMY'", "SET TimeZone TO 'Asia/Kathmandu'", "SET quote_all_identifiers TO on",
    "SET search_path TO pg_catalog", "SET extra_float_digits TO -15", "SET array_nulls TO off",
    "SET IntervalStyle TO 'sql_standard'", "SET transform_null_equals TO on",
)  # fmt: skip


@pytest.mark.parametrize("setting", [*ODD_SESSION, "SET standard_conforming_strings TO off"])
def test_a_connection_of_the_caller_keeps_its_settings_and_they_change_nothing(
    new_postgres_ledger: str, setting: str
) -> None:
    name = setting.split()[1]
    with Ledger(new_postgres_ledger) as ledger, psycopg.connect(new_postgres_ledger) as connection:
        connection.execute(setting)
        connection.commit()
        before = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
        receipt = ledger.submit("noop", {"text": "a\\b"}, client="test", key="k\\1", connection=connection)
        again = ledger.submit("noop", {"text": "a\\b"}, client="test", key="k\\1", connection=connection)
        assert (receipt.is_new, again.is_new, again.job_id) == (True, False, receipt.job_id)
        assert connection.execute("SELECT current_setting(%s)", (name,)).fetchone() == before
        connection.commit()
        assert connection.execute("SELECT current_setting(%s)", (name,)).fetchone() == before
        connection.commit()
        ledger.run_until_idle()
        assert ledger.job(receipt.job_id).state == "succeeded"


def test_no_function_of_a_trigger_depends_on_how_a_session_prints_or_reads_text() -> None:
    """Only search_path is pinned on them: a setting costs time at each call."""
    for name, text in generated("postgres", "function").items():
        assert not re.search(r"to_char|to_timestamp|_at::text|_at \|\||interval|\\\\|= NULL\b", text), name
