"""In a governed ledger no client can record new work at a version that is not in force, whatever it writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.core.errors import EnforcementDriftError
from holdfast.core.machines import JOB
from holdfast.governance.registry.supersede import retire, supersede
from holdfast.store import Store, create_store, open_store
from holdfast.store.enforcement import Refusal
from holdfast.store.migrations import migrate, verify
from tests.enforcement.raw import DOOR, SHUT, Client, Hand
from tests.governance.registries import WHO
from tests.governance.successions import governed, made

pytestmark = [pytest.mark.attack("sql"), pytest.mark.req("L-16")]


@pytest.fixture
def ledger(governed_url: str) -> Iterator[Store[Any]]:
    """A governed ledger with ship 1.0.0 and pack 1.0.0 in force."""
    with governed(governed_url) as store:
        yield store


@pytest.fixture
def hand(ledger: Store[Any]) -> Iterator[Hand]:
    client = Client(ledger.url)
    yield Hand(client)
    client.close()


def refusal(hand: Hand, operation: str, version: str = "1.0.0") -> str | None:
    """Try to record a job of a version by hand; return the code of the refusal."""
    birth = hand.birth(JOB, "submit", "pending", 1, operation=operation, operation_version=version)
    return hand.client.refusal(*birth)


def test_a_version_in_force_is_accepted_and_the_built_in_operation_too(hand: Hand) -> None:
    assert refusal(hand, "ship") is None
    assert refusal(hand, "noop") is None


@pytest.mark.parametrize(
    "operation, version",
    [("ship", "2.0.0"), ("ship", "01.0.0"), ("ship", ""), ("mail", "1.0.0"), ("tax", "9.0.0"), ("Ship", "1.0.0")],
)
def test_a_version_that_the_registry_does_not_have_is_refused(hand: Hand, operation: str, version: str) -> None:
    assert refusal(hand, operation, version) == Refusal.NOT_IN_FORCE


def test_without_a_registry_only_the_built_in_operation_is_accepted(governed_url: str) -> None:
    with made(governed_url):
        client = Client(governed_url)
        hand = Hand(client)
        assert refusal(hand, "ship") == Refusal.NOT_IN_FORCE
        assert refusal(hand, "noop") is None
        client.close()


def test_a_retired_or_superseded_version_is_refused(ledger: Store[Any]) -> None:
    supersede(ledger, "ship", "1.0.0", "2.0.0", **WHO)
    retire(ledger, "pack", "1.0.0", **WHO)
    client = Client(ledger.url)
    hand = Hand(client)
    assert refusal(hand, "ship", "1.0.0") == Refusal.NOT_IN_FORCE
    assert refusal(hand, "pack", "1.0.0") == Refusal.NOT_IN_FORCE
    assert refusal(hand, "ship", "2.0.0") is None
    client.close()


@pytest.mark.parametrize("withheld", ["collections", "values"])
def test_what_a_build_has_withheld_is_refused(ledger: Store[Any], withheld: str) -> None:
    """A collection that is not in force hides its values; a value of another status is not in force."""
    client = Client(ledger.url)
    if withheld == "collections":
        client.run("UPDATE holdfast_collections SET status = 'withheld'")
    else:
        client.run(DOOR)
        client.run("UPDATE holdfast_values SET status = 'withheld' WHERE operation_code = 'ship'")
        client.run(SHUT)
    assert refusal(Hand(client), "ship") == Refusal.NOT_IN_FORCE
    client.rollback()
    client.close()


def test_one_job_of_another_version_among_many_refuses_the_statement(hand: Hand) -> None:
    calls = [hand.client.run(*hand.call(operation_version=version))[0][0] for version in ("1.0.0", "1.0.0", "2.0.0")]
    columns = dict(zip(*_parts(hand.birth(JOB, "submit", "pending", 1, operation="ship", job_id=0)), strict=True))
    rows = ", ".join(f"({', '.join('?' for _ in columns)})" for _ in calls)
    values = [value for call in calls for value in (columns | {"job_id": call}).values()]
    sql = f"INSERT INTO holdfast_jobs ({', '.join(columns)}) VALUES {rows}"
    before = hand.client.count("holdfast_jobs")
    assert hand.client.refusal(sql, *values) == Refusal.NOT_IN_FORCE
    assert hand.client.count("holdfast_jobs") == before


def _parts(statement: tuple[Any, ...]) -> tuple[list[str], tuple[Any, ...]]:
    sql, *values = statement
    return sql.partition("(")[2].partition(")")[0].split(", "), tuple(values)


def test_a_restore_brings_jobs_of_any_version_through_the_door(hand: Hand) -> None:
    hand.client.run(DOOR)
    assert refusal(hand, "mail", "9.0.0") is None
    hand.client.run(SHUT)


def test_a_ledger_that_is_not_governed_accepts_any_version(ledger_url: str) -> None:
    client = Client(ledger_url)
    assert refusal(Hand(client), "mail", "9.0.0") is None
    client.close()


def test_a_governed_ledger_without_its_trigger_is_not_opened(ledger: Store[Any]) -> None:
    name = "holdfast_jobs_in_force"
    client = Client(ledger.url)
    client.run(f"DROP TRIGGER {name}" + (" ON holdfast_jobs" if client.dialect == "postgres" else ""))
    client.commit()
    client.close()
    with pytest.raises(EnforcementDriftError) as refused:
        verify(ledger)
    assert refused.value.context["differs"] == [name]
    migrate(ledger)
    verify(ledger)


def test_a_ledger_that_becomes_governed_through_the_door_is_not_opened_before_it_has_the_trigger(
    empty_url: str,
) -> None:
    with create_store(empty_url) as store:
        client = Client(empty_url)
        for statement in (DOOR, "UPDATE holdfast_meta SET value = 'yes' WHERE name = 'governed'", SHUT):
            client.run(statement)
        client.commit()
        client.begin()
        with pytest.raises(EnforcementDriftError) as refused:
            verify(store)
        assert refused.value.context["differs"] == ["holdfast_jobs_in_force"]
        client.commit()
        migrate(store)
        verify(store)
        client.begin()
        assert refusal(Hand(client), "ship") == Refusal.NOT_IN_FORCE
        client.close()


# ---------------------------------------------------------------------------------------------------------------------
# Races


def test_a_version_stays_in_force_until_the_insert_of_a_raw_client_commits(ledger: Store[Any]) -> None:
    """A retirement waits for the transaction that has inserted a job at the version."""
    done = list[bool]()
    with open_store(ledger.url) as other:
        client = Client(ledger.url)
        hand = Hand(client)
        assert refusal(hand, "ship") is None
        thread = threading.Thread(target=lambda: done.append(retire(other, "ship", "1.0.0", **WHO).changed))
        thread.start()
        thread.join(0.3)
        assert done == []
        client.commit()
        thread.join(20)
    assert done == [True]
    client.begin()
    assert refusal(hand, "ship") == Refusal.NOT_IN_FORCE
    client.close()


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_an_insert_that_waits_for_a_retirement_is_refused(pg_url: str, isolation: str) -> None:
    """PostgreSQL: the look began before the retirement committed, and is judged by what it committed."""
    with governed(pg_url):
        client, blocker, codes = Client(pg_url), Client(pg_url), list[str | None]()
        client.rollback()
        client.connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        hand = Hand(client)
        birth = hand.birth(JOB, "submit", "pending", 1, operation="ship")
        # As a shell does: a retirement that has not committed holds the row.
        blocker.run(DOOR)
        blocker.run("UPDATE holdfast_values SET status = 'withheld' WHERE operation_code = 'ship'")
        blocker.run(SHUT)
        thread = threading.Thread(target=lambda: codes.append(client.refusal(*birth)))
        thread.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT%'"
        with psycopg.connect(pg_url, autocommit=True) as watcher:
            while watcher.execute(waits).fetchall() == [(0,)]:
                thread.join(0.01)
                assert codes == []
        blocker.commit()
        thread.join(20)
        client.close()
        blocker.close()
    assert codes == [Refusal.NOT_IN_FORCE if isolation == "READ COMMITTED" else "40001"]
