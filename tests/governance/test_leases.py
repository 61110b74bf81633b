"""Named leases: won by one holder, fenced by a token that only grows, healed by their time limit."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.errors import InputError, RuntimeLeaseError
from holdfast.governance.leases import acquire, held, hold, release
from holdfast.store import Store, create_store
from holdfast.testing import VirtualClock
from tests.support.ledgers import new_store

MINUTE = timedelta(minutes=1)
NAME = "registry"


def lease(store: Store[Any]) -> tuple[str, int, float]:
    """Who has it, by which token, and for how many seconds from now."""
    with store.reading() as reading:
        found = reading.leases.all()[NAME]
    return found.holder, found.token, (found.expires_at - store.now()).total_seconds()


@pytest.mark.req("L-14")
def test_one_holder_gets_a_lease_and_it_is_free_after_its_time_limit(store: Store[Any], clock: VirtualClock) -> None:
    assert acquire(store, NAME, "ann", MINUTE) == 1
    assert acquire(store, NAME, "bob", MINUTE) is None
    assert acquire(store, "another", "bob", MINUTE) == 1
    assert lease(store) == ("ann", 1, 60)
    clock.advance(59.999999)
    assert acquire(store, NAME, "bob", MINUTE) is None
    clock.advance(0.000001)
    assert acquire(store, NAME, "bob", MINUTE) == 2  # ann has died: no cleanup is needed
    assert lease(store) == ("bob", 2, 60)
    # ann comes back from a long pause: her token is invalid
    assert not hold(store, NAME, "ann", 1, MINUTE)
    assert not release(store, NAME, "ann", 1)
    assert not release(store, NAME, "bob", 1)
    assert not release(store, NAME, "ann", 2)
    assert acquire(store, NAME, "ann", MINUTE) is None
    assert lease(store) == ("bob", 2, 60)


@pytest.mark.req("L-14")
def test_the_holders_own_is_renewed_under_its_token_and_never_cut_short(store: Store[Any], clock: VirtualClock) -> None:
    assert acquire(store, NAME, "ann", MINUTE) == 1
    clock.advance(30)
    assert acquire(store, NAME, "ann", MINUTE) == 1
    assert lease(store) == ("ann", 1, 60)
    assert acquire(store, NAME, "ann", MINUTE / 2) == 1
    assert hold(store, NAME, "ann", 1, MINUTE / 2)
    assert lease(store) == ("ann", 1, 60)
    assert hold(store, NAME, "ann", 1, 2 * MINUTE)
    assert lease(store) == ("ann", 1, 120)
    clock.advance(120)
    assert not hold(store, NAME, "ann", 1, MINUTE)  # it expired: another may have held it since
    assert acquire(store, NAME, "ann", MINUTE) == 2


@pytest.mark.req("L-14")
def test_a_released_lease_is_free_at_once_and_its_token_is_invalid(store: Store[Any]) -> None:
    assert acquire(store, NAME, "ann", MINUTE) == 1
    assert release(store, NAME, "ann", 1)
    assert not release(store, NAME, "ann", 1)
    assert not hold(store, NAME, "ann", 1, MINUTE)
    assert acquire(store, NAME, "bob", MINUTE) == 2
    assert not release(store, NAME, "ann", 1)
    assert lease(store)[:2] == ("bob", 2)


@pytest.mark.req("L-14")
def test_a_second_holder_who_asks_for_an_exception_gets_one(store: Store[Any], clock: VirtualClock) -> None:
    with held(store, NAME, "ann", MINUTE) as hers:
        with pytest.raises(RuntimeLeaseError) as caught, held(store, NAME, "bob", MINUTE):
            pass
        assert (caught.value.code, caught.value.exit_code) == ("lease_held", 3)
        assert caught.value.context == {"lease": NAME, "holder": "ann"}
        clock.advance(30)
        hers.hold()
        assert lease(store) == ("ann", hers.token, 60)
        clock.advance(60)
        with held(store, NAME, "bob", MINUTE) as his:
            assert his.token == hers.token + 1
            with pytest.raises(RuntimeLeaseError):
                hers.hold()
            assert lease(store)[0] == "bob"
    assert acquire(store, NAME, "eve", MINUTE) == 3  # both are given back


def test_a_lease_is_given_back_when_its_block_fails(store: Store[Any]) -> None:
    with pytest.raises(ZeroDivisionError), held(store, NAME, "ann", MINUTE):
        raise ZeroDivisionError
    assert acquire(store, NAME, "bob", MINUTE) == 2


@pytest.mark.req("L-14")
def test_of_many_threads_one_gets_the_lease(ledger_url: str) -> None:
    """By the real clock: of threads that ask at the same moment one wins, again and again."""
    threads_n, rounds = 8, 5
    with create_store(ledger_url) as store:
        start = threading.Barrier(threads_n)
        won: list[tuple[int, str, int]] = []
        failures: list[BaseException] = []

        def ask(holder: str) -> None:
            try:
                for number in range(rounds):
                    start.wait(30)
                    token = acquire(store, f"lease-{number}", holder, MINUTE)
                    if token is not None:
                        won.append((number, holder, token))
            except BaseException as error:  # noqa: BLE001 - the test fails with it
                failures.append(error)

        threads = [threading.Thread(target=ask, args=(f"holder-{n}",)) for n in range(threads_n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert sorted((number, token) for number, _, token in won) == [(number, 1) for number in range(rounds)]
        with store.reading() as reading:
            holders = {name: lease.holder for name, lease in reading.leases.all().items()}
        assert holders == {f"lease-{number}": holder for number, holder, _ in won}


@pytest.mark.parametrize(
    "given, field",
    [
        ({"name": ""}, "name"),
        ({"holder": " "}, "holder"),
        ({"name": "a\0b"}, "name"),
        ({"holder": "x" * 1025}, "holder"),
        ({"ttl": timedelta(0)}, "ttl"),
        ({"ttl": -MINUTE}, "ttl"),
        ({"ttl": timedelta(days=31)}, "ttl"),
    ],
)
def test_an_invalid_lease_is_refused(sqlite_url: str, given: dict[str, Any], field: str) -> None:
    with new_store(sqlite_url) as store:
        with pytest.raises(InputError) as caught:
            acquire(store, **{"name": NAME, "holder": "ann", "ttl": MINUTE, **given})
        assert caught.value.context["field"] == field
        with store.reading() as reading:
            assert reading.leases.all() == {}
