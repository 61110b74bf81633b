"""`connection=` takes the connection of Django: the job comes and goes with the rows of `atomic`."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg.conninfo
import pytest
from django import setup
from django.conf import settings
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from holdfast import Ledger
from holdfast.core.errors import ConnectionUnfitError
from holdfast.testing import drain
from tests.engine.database import Database

ALIAS = "shop"


@pytest.fixture
def django(ledger: Ledger, database: Database) -> Iterator[BaseDatabaseWrapper]:
    database.run("CREATE TABLE orders (n integer NOT NULL)")
    ledger.counts()
    if not settings.configured:
        settings.configure()
        setup()
    defaults = dict(connections.databases["default"])
    if database.is_postgres:
        found = psycopg.conninfo.conninfo_to_dict(database.url)
        place = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": found["dbname"],
            "USER": found["user"],
            "HOST": found["host"],
            "PORT": str(found["port"]),
        }
    else:
        place = {"ENGINE": "django.db.backends.sqlite3", "NAME": database.url.removeprefix("sqlite:///")}
    connections.databases[ALIAS] = defaults | place
    yield connections[ALIAS]
    connections[ALIAS].close()
    del connections[ALIAS]
    del connections.databases[ALIAS]


def keys(ledger: Ledger) -> list[str]:
    with ledger.store.reading() as reading:
        return sorted(job.key or "" for job in reading.lists.jobs())


def test_a_job_commits_and_rolls_back_with_atomic(
    ledger: Ledger, database: Database, django: BaseDatabaseWrapper
) -> None:
    class Refused(Exception): ...

    for n in (0, 1):
        try:
            with transaction.atomic(using=ALIAS):
                with django.cursor() as cursor:
                    cursor.execute("INSERT INTO orders (n) VALUES (%s)", [n])
                ledger.submit("noop", client="shop", key=f"order-{n}", connection=django)
                assert keys(ledger) == []
                if n == 0:
                    raise Refused
        except Refused:
            assert n == 0
    assert (database.run("SELECT n FROM orders"), keys(ledger)) == ([(1,)], ["order-1"])
    assert drain(ledger) == 1


def test_a_savepoint_of_the_framework_takes_the_job_with_it(ledger: Ledger, django: BaseDatabaseWrapper) -> None:
    with transaction.atomic(using=ALIAS):
        ledger.submit("noop", client="shop", key="kept", connection=django)
        point = transaction.savepoint(using=ALIAS)
        ledger.submit("noop", client="shop", key="undone", connection=django)
        transaction.savepoint_rollback(point, using=ALIAS)
    assert keys(ledger) == ["kept"]


def test_without_atomic_it_is_refused(ledger: Ledger, django: BaseDatabaseWrapper) -> None:
    with pytest.raises(ConnectionUnfitError) as refused:
        ledger.submit("noop", connection=django)
    assert refused.value.context == {"needs": "transaction"}
    assert keys(ledger) == []
