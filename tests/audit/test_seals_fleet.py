"""Sealing while others write: transactions held open, committed late or rolled back, and many sealers at once.

Invariants: in the end every row is closed by exactly one seal, worked out from the tables alone; a verification that
runs beside all of it never reports anything.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.audit.seals.horizons import floor_of
from holdfast.audit.seals.sealer import seal
from holdfast.audit.seals.verify import verify
from holdfast.store import Store, Submission, create_store, open_store
from tests.audit.sealing import journal, loose_rows, seals, submit
from tests.store.conftest import phases
from tests.support.roles import wait_until

ROOT = Path(__file__).parents[2]


class Held:
    """A transaction of the ledger that a connection of its own holds open."""

    def __init__(self, store: Store[Any]) -> None:
        self._store = store
        self._connection = psycopg.connect(store.url)

    def write(self, n: int = 1) -> None:
        with self._store.borrowed(self._connection) as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}") for _ in range(n)], actor="held")

    @property
    def xid(self) -> int:
        row = self._connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
        assert row is not None
        return int(row[0])

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def store(new_postgres_ledger: str) -> Iterator[Store[Any]]:
    with create_store(new_postgres_ledger) as opened:
        yield opened


@pytest.fixture
def hold(store: Store[Any]) -> Iterator[Callable[[], Held]]:
    made: list[Held] = []

    def begin() -> Held:
        made.append(Held(store))
        return made[-1]

    yield begin
    for held in made:
        held.close()


def numbers(made: list[Any]) -> list[tuple[int, int, int]]:
    return [(one.low_seq, one.high_seq, one.rows) for one in made]


def sealed_soon(store: Store[Any], rows: int) -> None:
    """Seal until so many rows are: some other transaction of the server may be older for a moment."""
    deadline = time.monotonic() + 10
    while sum(one.rows for one in seals(store)) < rows and time.monotonic() < deadline:
        seal(store)
    assert sum(one.rows for one in seals(store)) == rows


# ---------------------------------------------------------------------------------------------------------------------
# One by one


@pytest.mark.req("G-23")
def test_a_commit_that_comes_late_with_lower_numbers(store: Store[Any], hold: Callable[[], Held]) -> None:
    early = hold()
    early.write(3)  # numbers 1 to 3, and the lower transaction id
    submit(store, 2)
    assert [row[0] for row in journal(store)] == [4, 5]
    # The rows that can be seen have the higher keys: closing them would leave the others behind.
    assert seal(store) == []
    assert loose_rows(store) == [4, 5]
    early.commit()
    sealed_soon(store, 5)
    assert loose_rows(store) == []
    assert verify(store).ok


@pytest.mark.parametrize("window", [1, 1000])
def test_a_transaction_that_stays_open_during_a_sealing(
    store: Store[Any], hold: Callable[[], Held], monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Its rows are the first and the last ones, and all sort before what was written meanwhile."""
    monkeypatch.setattr("holdfast.audit.seals.sealer.WINDOW", window)
    long = hold()
    long.write(1)
    for _ in range(6):
        submit(store, 3)
        assert seal(store, block_rows=2) == []
    long.write(2)
    long.commit()
    deadline = time.monotonic() + 10
    made = seal(store, block_rows=2)
    while not made and time.monotonic() < deadline:
        made = seal(store, block_rows=2)
    assert numbers(made)[:3] == [(1, 20, 2), (2, 21, 2), (3, 4, 2)]
    assert loose_rows(store) == []
    assert verify(store).ok


def test_a_rolled_back_transaction_leaves_only_a_gap(store: Store[Any], hold: Callable[[], Held]) -> None:
    submit(store, 2)
    doomed = hold()
    doomed.write(3)
    submit(store, 2)
    sealed_soon(store, 2)
    doomed.rollback()
    sealed_soon(store, 4)
    assert [row[0] for row in journal(store)] == [1, 2, 6, 7]
    assert loose_rows(store) == []
    report = verify(store)
    assert (report.ok, report.sealed, report.unsealed) == (True, 4, 0)


def test_numbers_that_were_given_out_before_a_sealing_are_found_after_it(
    store: Store[Any], hold: Callable[[], Held]
) -> None:
    """The horizon of a sealing must lie above transactions that run and have their numbers, but have not ended.

    The upper end of a snapshot does not: it is one above the last transaction that has ended, which may be the very one
    that still runs.
    """
    early = hold()
    early.write(1)
    early.commit()
    late = the_newest(store, hold)
    sealed_soon(store, 1)
    for _ in range(3):
        submit(store, 1)
        seal(store)
        with store.reading() as reading:
            assert floor_of(reading.seals, reading.settings.read(), reading.seals.last()) <= 1
    late.commit()
    sealed_soon(store, 6)
    assert loose_rows(store) == []
    seal(store)
    assert verify(store).ok


def the_newest(store: Store[Any], hold: Callable[[], Held]) -> Held:
    """Return a transaction with two rows that is open and newer than every one that has ended."""
    for _ in range(50):
        late = hold()
        late.write(2)
        with store.reading() as reading:
            [[newest]] = reading.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        if newest == late.xid:
            return late
        late.rollback()
        time.sleep(0.05)
    raise AssertionError("another transaction was always newer")


def test_a_sealing_that_ends_within_a_transaction(store: Store[Any], hold: Callable[[], Held]) -> None:
    """A block may end between two rows of one transaction, and the sealer may die there."""
    late = hold()
    late.write(1)
    submit(store, 1)
    seal(store)
    late.write(3)
    late.commit()
    submit(store, 1)
    for made in (1, 2):
        with dying(store, after=1) as dies, pytest.raises(Dead):
            seal(dies, block_rows=2)
        assert len(seals(store)) == made
        assert verify(store).ok
    sealed_soon(store, 6)
    assert loose_rows(store) == []
    assert verify(store).ok


def test_a_sealer_that_was_overtaken_seals_nothing(store: Store[Any]) -> None:
    """Another sealer closes the same rows between the look and the seal."""
    submit(store, 20)
    with open_store(store.url) as other:
        interrupted: list[Any] = []

        def interrupt() -> datetime:
            if not interrupted:
                interrupted.append(seal(other, block_rows=3))
            return datetime.now(UTC)

        with open_store(store.url, interrupt) as slow:
            assert seal(slow, block_rows=4) == []
    assert numbers(interrupted[0])[0] == (1, 3, 3)
    assert loose_rows(store) == []


class Dead(Exception):
    """The error that stops a sealer."""


@contextmanager
def dying(store: Store[Any], after: int) -> Iterator[Store[Any]]:
    """Yield a store whose sealer dies once it has written so many seals."""
    left = [after]

    def clock() -> datetime:
        if left[0] == 0:
            raise Dead
        left[0] -= 1
        return datetime.now(UTC)

    with open_store(store.url, clock) as dies:
        yield dies


# ---------------------------------------------------------------------------------------------------------------------
# In any order

STEP = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("commit"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("rollback"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("write_now"), st.just(0), st.integers(1, 3)),
    st.tuples(st.just("seal"), st.just(0), st.integers(1, 4)),
    st.tuples(st.just("die"), st.integers(0, 2), st.integers(1, 3)),
)


@pytest.mark.req("G-23")
@settings(max_examples=settings().max_examples // 4, phases=phases())
@given(steps=st.lists(STEP, min_size=5, max_size=25), window=st.sampled_from([1, 10, 1000]))
def test_any_interleaving_of_writers_and_sealers_is_sealed_completely(
    store: Store[Any], steps: list[tuple[str, int, int]], window: int
) -> None:
    held = [Held(store) for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr("holdfast.audit.seals.sealer.WINDOW", window)  # how much a sealing looks at in one go
        for one in held:
            stack.callback(one.close)
        for step, who, n in steps:
            if step == "write":
                held[who].write(n)
            elif step == "commit":
                held[who].commit()
            elif step == "rollback":
                held[who].rollback()
            elif step == "write_now":
                submit(store, n)
            elif step == "seal":
                seal(store, block_rows=n)
            else:
                with suppress(Dead), dying(store, after=who) as dies:
                    seal(dies, block_rows=n)
        loose_rows(store)  # each row sealed once
        for one in held:
            one.commit()
        sealed_soon(store, len(journal(store)))
    assert loose_rows(store) == []
    assert verify(store).ok


# ---------------------------------------------------------------------------------------------------------------------
# All at once

SEALER = """
import select, sys
from holdfast.store import open_store
from holdfast.audit.seals.sealer import seal
made = 0
with open_store(sys.argv[1]) as store:
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:  # until the test closes it
        made += len(seal(store, block_rows=int(sys.argv[2])))
print(made, flush=True)
"""


def sealer_of(store: Store[Any], rows: int) -> subprocess.Popen[str]:
    """Start a process that seals until its standard input is closed, and wait until it has opened the ledger."""
    command = [sys.executable, "-c", SEALER, store.url, str(rows)]
    sealer = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert sealer.stdout is not None
    assert sealer.stdout.readline() == "ready\n"
    return sealer


def crowd(store: Store[Any], times: int) -> None:
    """Write from threads, some of which hold their transactions open; seal from processes; verify all the while.

    It ends when each thread has written `times` times, and there are as many seals.
    """
    stop = threading.Event()
    done: Counter[int] = Counter()

    def writes(seed: int) -> None:
        draw = random.Random(seed)
        with open_store(store.url) as own:
            while not stop.is_set():
                submit(own, draw.randint(1, 5))
                done[seed] += 1

    def holds(seed: int) -> None:
        draw = random.Random(seed)
        with open_store(store.url) as own:
            held = Held(own)
            while not stop.is_set():
                for _ in range(draw.randint(1, 3)):
                    held.write(draw.randint(1, 3))
                    time.sleep(draw.random() * 0.05)
                if draw.random() < 0.3:
                    held.rollback()
                else:
                    held.commit()
                    done[seed] += 1
            held.rollback()
            held.close()

    def verifies(seed: int) -> None:
        with open_store(store.url) as own:
            while not stop.is_set():
                report = verify(own)
                assert report.ok, report.problems
                done[seed] += 1

    sealers = [sealer_of(store, rows) for rows in (3, 16, 8192)]
    with ThreadPoolExecutor(5) as pool:
        work = [pool.submit(act, seed) for seed, act in enumerate((writes, writes, holds, holds), start=1)]
        work.append(pool.submit(verifies, 5))

        def enough() -> bool:
            ended = [one for one in work if one.done()]  # by an error
            return bool(ended) or (min(done[seed] for seed in range(1, 5)) >= times and bool(done[5]))

        try:
            wait_until(lambda: enough() and len(seals(store)) >= times, 60, "each has done its part", lambda: done)
        finally:
            stop.set()
            printed = [sealer.communicate(timeout=60)[0] for sealer in sealers]
        for one in work:
            one.result()
    assert [sealer.returncode for sealer in sealers] == [0, 0, 0]
    assert sum(map(int, printed)) == len(seals(store)) > 5
    sealed_soon(store, len(journal(store)))
    assert loose_rows(store) == []
    report = verify(store)
    assert (report.ok, report.sealed, report.unsealed) == (True, len(journal(store)), 0)


@pytest.mark.req("G-23")
def test_a_fleet_that_writes_holds_seals_and_verifies(store: Store[Any]) -> None:
    crowd(store, 6)


@pytest.mark.slow
def test_a_fleet_for_longer(store: Store[Any]) -> None:
    crowd(store, 100)


def test_many_sealers_of_one_file(sqlite_url: str) -> None:
    """On SQLite too: writers, sealers and verifiers of one file, from processes and threads."""
    with create_store(sqlite_url) as store:
        sealers = [sealer_of(store, rows) for rows in (3, 8192)]
        written, until = 0, time.monotonic() + 60
        while len(seals(store)) < 10 and time.monotonic() < until:
            submit(store, 2)
            written += 2
            assert verify(store).ok
        printed = [sealer.communicate()[0] for sealer in sealers]
        assert [sealer.returncode for sealer in sealers] == [0, 0]
        assert sum(map(int, printed)) == len(seals(store)) > 0
        seal(store)
        assert len(journal(store)) == written
        assert loose_rows(store) == []
        assert verify(store).ok
