"""The sealer: every row is closed once, by seals that follow each other, on both databases."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast.audit.seals.horizons import floor_of
from holdfast.audit.seals.sealer import Head, genesis, head, row_lines, seal, seal_hash
from holdfast.audit.seals.verify import verify
from holdfast.core.commands import Complete
from holdfast.core.errors import EpochError, InputError, RefusedByDatabaseError, SealsBrokenError
from holdfast.core.seals import Seal
from holdfast.store import Lease, Store, connect, create_store, open_store
from holdfast.testing import VirtualClock
from tests.audit.sealing import guards_off, journal, loose_rows, seals, shift_xids, submit, write_epoch

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(ledger_url: str) -> Iterator[Store[Any]]:
    with create_store(ledger_url, VirtualClock()) as opened:
        yield opened


def meta(store: Store[Any]) -> dict[str, str]:
    with store.reading() as reading:
        return reading.settings.read()


# ---------------------------------------------------------------------------------------------------------------------
# The format


@pytest.mark.req("G-23")
def test_the_bytes_of_a_seal_never_change() -> None:
    """A change here makes every saved seal invalid."""
    at = "2026-03-14T09:26:53.589793Z"
    rows = [
        (
            1,
            1,
            0,
            "JOB",
            7,
            1,
            None,
            "pending",
            "submit",
            "web",
            'it said "é\\ü"\n',
            0,
            "m-1",
            None,
            None,
            at,
            None,
            None,
        ),
        (2, 1, 0, "GRANT", 3, 2, "draft", "active", "approve", "ann", None, None, "m-2", 3, 9, at, None, None),
        (
            3,
            1,
            0,
            "JOB",
            7,
            3,
            "running",
            "succeeded",
            "succeed",
            "w",
            None,
            1,
            "m-3",
            None,
            None,
            at,
            "IN_PROGRESS",
            "DONE",
        ),
    ]
    lines = (
        '[1,1,0,"JOB",7,1,null,"pending","submit","web","it said \\"é\\\\ü\\"\\n",0,"m-1",null,null,'
        '"2026-03-14T09:26:53.589793Z",null,null]\n'
        '[2,1,0,"GRANT",3,2,"draft","active","approve","ann",null,null,"m-2",3,9,"2026-03-14T09:26:53.589793Z",'
        "null,null]\n"
        '[3,1,0,"JOB",7,3,"running","succeeded","succeed","w",null,1,"m-3",null,null,"2026-03-14T09:26:53.589793Z",'
        '"IN_PROGRESS","DONE"]\n'
    )
    assert row_lines(rows) == lines.encode()
    assert (
        genesis("0123456789abcdef0123456789abcdef")
        == "d471e4b1ca01dc033e27e9c6206f80c1850c6105df9f80367bf413dfe732e679"
    )
    vector = Seal(
        seal_id=1,
        format=2,
        epoch=1,
        last_xid=0,
        last_seq=3,
        low_seq=1,
        high_seq=3,
        rows=3,
        digest=hashlib.sha256(lines.encode()).hexdigest(),
        previous=genesis("0123456789abcdef0123456789abcdef"),
        hash="",
        sealed_at=at,
        horizon_xid=5,
        horizon_seq=6,
    )
    assert vector.digest == "5bf7aa93117fba9684ffbdafb3992e11cced8e25297ed867cf25d0fb56be3518"
    assert seal_hash(vector) == "e4d8431b634fb488e28ef3c7739f08ae3a2c6142bf035ca040caac8313dc984a"
    # The horizon is a hint to the next sealing, and no hash covers it.
    assert seal_hash(msgspec.structs.replace(vector, horizon_xid=0, horizon_seq=0)) == seal_hash(vector)


# ---------------------------------------------------------------------------------------------------------------------
# Closing


@pytest.mark.req("G-23")
def test_a_sealing_closes_full_blocks_and_the_rest(store: Store[Any]) -> None:
    assert seal(store) == []
    submit(store, 20)
    made = seal(store, block_rows=8)
    assert [(one.seal_id, one.rows, one.low_seq, one.high_seq) for one in made] == [
        (1, 8, 1, 8),
        (2, 8, 9, 16),
        (3, 4, 17, 20),
    ]
    assert seals(store) == made
    assert loose_rows(store) == []
    assert seal(store, block_rows=8) == []
    submit(store, 1)
    assert loose_rows(store) == [21]
    assert [(one.seal_id, one.rows) for one in seal(store)] == [(4, 1)]
    assert meta(store)["seal_head"] == f"4 {seals(store)[-1].hash}"
    assert {one.sealed_at for one in seals(store)} == {"2026-03-14T09:26:53.589793Z"}


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_a_long_journal_is_looked_at_in_parts(store: Store[Any], monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr("holdfast.audit.seals.sealer.WINDOW", 1)
    for n in (5, 1, 30, 2, 2):
        submit(store, n)
    made = seal(store, block_rows=rows)
    full, rest = divmod(40, rows)
    assert [one.rows for one in made] == [rows] * full + [rest] * bool(rest)
    assert loose_rows(store) == []


def test_whole_work_is_sealed(store: Store[Any]) -> None:
    submit(store, 5)
    with store.transaction() as transaction:
        attempts = transaction.executions.claim(Lease(owner="w", seconds=60, n=5))
        transaction.executions.move(
            [(a, Complete(a.execution.lease_token)) for a in attempts], actor="w", reason="naïve “✓”"
        )
    with store.transaction() as transaction, transaction.maintenance.open(who="ann", why="tests") as door:
        transaction.maintenance.note(door, "looked", at="é")
    made = seal(store, block_rows=7)
    assert sum(one.rows for one in made) == len(journal(store)) == 3 * 5 + 3
    assert loose_rows(store) == []
    assert verify(store).ok


@pytest.mark.parametrize("rows", [0, -1])
def test_a_block_has_a_row(store: Store[Any], rows: int) -> None:
    submit(store)
    with pytest.raises(InputError):
        seal(store, block_rows=rows)
    assert seals(store) == []


def test_a_ledger_in_a_schema_of_its_own(pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection:
        connection.execute('CREATE SCHEMA "Odd name"')
    with create_store(pg_url, schema="Odd name") as store:
        submit(store, 5)
        assert [one.rows for one in seal(store, block_rows=3)] == [3, 2]
        with store.reading() as reading:
            assert reading.seals.journal_begins() == 0
        assert verify(store).ok


def test_the_head_is_where_the_chain_ends(store: Store[Any]) -> None:
    ledger_id = meta(store)["ledger_id"]
    assert head(store) == Head(ledger_id=ledger_id, epoch=1, seal=0, hash=genesis(ledger_id), rows=0, sealed_at=None)
    submit(store, 3)
    seal(store, block_rows=2)
    submit(store, 4)
    found = head(store)
    assert found == Head(
        ledger_id=ledger_id,
        epoch=1,
        seal=3,
        hash=seals(store)[-1].hash,
        rows=7,
        sealed_at="2026-03-14T09:26:53.589793Z",
    )
    assert verify(store, head=found).head == found


def test_seals_cannot_be_written_by_hand_or_changed(store: Store[Any]) -> None:
    submit(store)
    [made] = seal(store)
    for act in (
        "UPDATE holdfast_seals SET rows = 9",
        "DELETE FROM holdfast_seals",
        f"INSERT INTO holdfast_seals SELECT 3, 2, 1, 0, 9, 9, 9, 1, 'd', '{made.hash}', 'h', 'now', 0, 0",
        "INSERT INTO holdfast_seals SELECT 2, 2, 1, 0, 9, 9, 9, 1, 'd', 'another', 'h', 'now', 0, 0",
    ):
        with pytest.raises(RefusedByDatabaseError), store.transaction() as transaction:
            transaction.execute(act)
    assert seals(store) == [made]


# ---------------------------------------------------------------------------------------------------------------------
# What is looked at


def floor(store: Store[Any]) -> int:
    """Return the number from which on the next sealing looks for rows."""
    with store.reading() as reading:
        return floor_of(reading.seals, reading.settings.read(), reading.seals.last())


def test_sealed_rows_are_not_read_again(store: Store[Any]) -> None:
    for blocks in range(1, 4):
        submit(store, 8)
        assert floor(store) <= 8 * (blocks - 1)
        seal(store)
        if store.one_writer:
            assert floor(store) == 8 * blocks
        # On PostgreSQL another transaction may be open; once it has ended, an empty sealing raises the floor.
        deadline = time.monotonic() + 10
        while floor(store) < 8 * blocks and time.monotonic() < deadline:
            assert seal(store) == []
        assert floor(store) == 8 * blocks
    assert loose_rows(store) == []


def test_a_seal_floor_of_another_epoch_is_ignored(store: Store[Any]) -> None:
    submit(store, 8)
    seal(store)
    seal(store)
    write_epoch(store, "2")
    assert floor(store) == 0
    submit(store, 8)
    submit(store, 3)
    made = seal(store, block_rows=8)
    assert [(one.epoch, one.rows) for one in made] == [(2, 8), (2, 3)]
    assert loose_rows(store) == []
    assert verify(store).ok


def test_a_block_is_of_one_epoch(store: Store[Any]) -> None:
    submit(store, 3)
    write_epoch(store, "2")
    submit(store, 3)
    made = seal(store, block_rows=8)
    assert [(one.epoch, one.rows) for one in made] == [(1, 3), (2, 3)]
    assert loose_rows(store) == []


# ---------------------------------------------------------------------------------------------------------------------
# Refusals


@pytest.mark.req("G-23")
@pytest.mark.parametrize(
    "how", ["DELETE FROM holdfast_seals WHERE seal_id = 2", "DELETE FROM holdfast_seals",
            "UPDATE holdfast_seals SET rows = 9 WHERE seal_id = 2",
            "UPDATE holdfast_meta SET value = '1 0' WHERE name = 'seal_head'",
            "DELETE FROM holdfast_meta WHERE name = 'seal_head'"],
)  # fmt: skip
def test_nothing_is_sealed_after_a_broken_end(ledger_url: str, how: str) -> None:
    """Another seal would hide that the last one was changed."""
    with create_store(ledger_url) as store:
        for _ in range(2):
            submit(store)
            seal(store)
        submit(store)
    with guards_off(ledger_url) as client:
        client.run(how)
    with open_store(ledger_url) as store:
        before = seals(store)
        with pytest.raises(SealsBrokenError):
            seal(store)
        with pytest.raises(SealsBrokenError):
            head(store)
        assert seals(store) == before
        assert not verify(store).ok


@pytest.mark.parametrize("sealed_before", [True, False])
def test_a_ledger_restored_from_an_older_database_needs_a_new_epoch(empty_url: str, sealed_before: bool) -> None:
    with create_store(empty_url) as store:
        submit(store)
        if sealed_before:
            seal(store)
    with guards_off(empty_url) as client:
        shift_xids(client, 1_000_000)
    if sealed_before and empty_url.startswith("postgres"):  # then it is not even opened: nothing is written
        with pytest.raises(EpochError):
            open_store(empty_url)
    with connect(empty_url) as store:
        submit(store, 3)
        before = seals(store)
        with pytest.raises(EpochError) as refused:
            seal(store)
        assert refused.value.exit_code == 4
        assert refused.value.context["epoch"] == 1
        assert seals(store) == before
        # After a new epoch, rows of the old one are closed as they are, and new rows sort after them.
        write_epoch(store, "2")
    with open_store(empty_url) as store:
        submit(store, 3)
        made = seal(store)
        assert [(one.epoch, one.rows) for one in made] == ([(2, 3)] if sealed_before else [(1, 11), (2, 3)])
        # A row written later in the old epoch sorts among sealed rows: it is reported.
        late = [(p.kind, p.seal, p.seq, p.to_seq) for p in verify(store).problems]
        assert late == ([("row_inserted", 1, 9, 11)] if sealed_before else [])


def test_an_epoch_never_goes_back(store: Store[Any]) -> None:
    write_epoch(store, "2")
    submit(store)
    [made] = seal(store)
    write_epoch(store, "1")
    with pytest.raises(EpochError) as refused:
        seal(store)
    assert refused.value.context == {"epoch": 1, "sealed_epoch": 2}
    assert seals(store) == [made]


# ---------------------------------------------------------------------------------------------------------------------
# A killed sealer


CHILD = """
import sys
from holdfast.store import open_store
from holdfast.audit.seals.sealer import seal
with open_store(sys.argv[1]) as store:
    print("ready", flush=True)
    seal(store, block_rows=1)
    print("done", flush=True)
"""


@pytest.mark.parametrize("after", [1, 40])
def test_a_chain_continues_after_its_sealer_was_killed(ledger_url: str, after: int) -> None:
    with create_store(ledger_url) as store:
        submit(store, 400)
        child = subprocess.Popen([sys.executable, "-c", CHILD, ledger_url], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        deadline = time.monotonic() + 30
        while len(seals(store)) < after and time.monotonic() < deadline:
            time.sleep(0.002)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        time.sleep(0.05)  # let the server notice
        half = len(seals(store))
        assert after <= half < 400
        assert len(loose_rows(store)) == 400 - half
        seal(store)
        assert loose_rows(store) == []
        assert verify(store).ok


# ---------------------------------------------------------------------------------------------------------------------
# Memory


def peaks(store: Store[Any], rows: int) -> tuple[int, int]:
    """Return the most memory that sealing and verifying so many rows took, in bytes."""
    for _ in range(0, rows, 5000):
        submit(store, 5000)
    found = []
    for act in (lambda: seal(store), lambda: verify(store)):
        tracemalloc.start()
        answer = act()
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert answer
    assert verify(store).sealed == len(journal(store))
    return found[0], found[1]


def test_memory_does_not_grow_with_the_journal(store: Store[Any]) -> None:
    sealing, verifying = peaks(store, 20_000)
    assert sealing < 3e6, f"{sealing / 1e6:.1f} MB"
    assert verifying < 16e6, f"{verifying / 1e6:.1f} MB"


@pytest.mark.slow
def test_memory_does_not_grow_with_a_long_journal(store: Store[Any]) -> None:
    sealing, verifying = peaks(store, 200_000)
    assert sealing < 16e6, f"{sealing / 1e6:.1f} MB"
    assert verifying < 16e6, f"{verifying / 1e6:.1f} MB"
