"""Tampering: every change of sealed rows or seals is found with its place, on both databases.

Invariants: every case is committed by a raw client that has dropped the triggers; one ledger of each kind serves all
cases of this file, and is put back to the byte after each. Five blocks of eight rows are sealed, each one transaction;
three rows are not.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast.audit.check.runner import check
from holdfast.audit.seals import heads, keys
from holdfast.audit.seals.problems import KINDS, SealProblem
from holdfast.audit.seals.sealer import Head, head_now, seal
from holdfast.audit.seals.verify import VerifyReport, verify
from holdfast.core.errors import HeadInvalidError
from holdfast.store import Store, connect, create_store, open_store
from holdfast.testing import VirtualClock
from tests.audit.knife import drop_triggers
from tests.audit.sealing import (
    BLOCK,
    COLUMNS,
    SEAL_COLUMNS,
    guards_off,
    journal,
    loose_rows,
    rewrite_all,
    seals,
    submit,
)
from tests.enforcement.raw import Client
from tests.support.postgres import tmpfs_directory

pytestmark = pytest.mark.attack("sql")

BLOCKS = 5
SEALED = BLOCK * BLOCKS
ROWS = SEALED + 3
AT = "2026-03-14T09:26:53.589793Z"
TABLES = {"holdfast_journal": COLUMNS, "holdfast_seals": SEAL_COLUMNS, "holdfast_meta": ("name", "value")}


class Scene:
    """A sealed ledger without triggers, and the raw client that tampers with it."""

    def __init__(self, url: str) -> None:
        with create_store(url, VirtualClock()) as store:
            for _ in range(BLOCKS):
                submit(store, reason="as it was")
                seal(store, block_rows=BLOCK)
            submit(store, 3)
            assert loose_rows(store) == [41, 42, 43]
            with store.reading() as reading:
                self.head = head_now(reading)
        self.url = url
        self.store: Store[Any] = connect(url, VirtualClock())
        self.client = Client(url)
        self.run = self.client.run
        drop_triggers(self.client)
        self.client.commit()
        self.client.begin()
        self._original = {
            table: self.run(f"SELECT {', '.join(columns)} FROM {table}") for table, columns in TABLES.items()
        }
        self.xids = [one.last_xid for one in seals(self.store)]  # of the blocks

    def set(self, row: int, /, **columns: object) -> None:
        """Edit one journal row."""
        sets = ", ".join(f"{column} = ?" for column in columns)
        assert self.client.changed(f"UPDATE holdfast_journal SET {sets} WHERE seq = ?", *columns.values(), row) == 1

    def insert(self, **columns: object) -> None:
        """Insert a journal row that is like row 20, but for some columns."""
        [row] = self.run(f"SELECT {', '.join(COLUMNS)} FROM holdfast_journal WHERE seq = 20")
        values = dict(zip(COLUMNS, row, strict=True)) | {"version": 99} | columns
        marks = ", ".join("?" for _ in values)
        self.run(f"INSERT INTO holdfast_journal ({', '.join(values)}) VALUES ({marks})", *values.values())

    def verified(self, head: Head | None = None) -> VerifyReport:
        """Commit what was done, and verify."""
        self.client.commit()
        self.client.begin()
        return verify(self.store, head=head)

    def found(self, head: Head | None = None) -> list[tuple[str, int | None, int | None, int | None]]:
        """Verify, and return the problems without their words."""
        report = self.verified(head)
        assert report.ok == (not report.problems)
        assert all(problem.kind in KINDS and problem.detail for problem in report.problems)
        return [(p.kind, p.seal, p.seq, p.to_seq) for p in report.problems]

    def put_back(self) -> None:
        self.client.rollback()
        self.client.begin()
        for table, columns in TABLES.items():
            self.run(f"DELETE FROM {table}")
            marks = ", ".join("?" for _ in columns)
            for row in self._original[table]:
                self.run(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", *row)
        self.client.commit()
        self.client.begin()

    def close(self) -> None:
        self.client.close()
        self.store.close()


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def one_scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    if request.param == "postgres":
        server = request.getfixturevalue("pg_server")
        server.start()
        scene = Scene(server.create_database())
        yield scene
        scene.close()
        server.drop_database(scene.url)
        return
    directory = tempfile.mkdtemp(prefix="holdfast-sqlite-", dir=tmpfs_directory())
    scene = Scene(f"sqlite:///{directory}/ledger.db")
    yield scene
    scene.close()
    shutil.rmtree(directory)


@pytest.fixture(params=["whole", "in pages"])
def scene(one_scene: Scene, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """The sealed ledger, read at once or in pages smaller than a block; whatever a test does to it is undone."""
    if request.param == "in pages":
        monkeypatch.setattr("holdfast.audit.seals.verify.PAGE", 5)
        monkeypatch.setattr("holdfast.audit.seals.chain.PAGE", 2)
    assert one_scene.found() == []
    yield one_scene
    one_scene.put_back()


def block(n: int) -> tuple[int, int]:
    """Return the first and the last number of a block."""
    return BLOCK * (n - 1) + 1, BLOCK * n


# ---------------------------------------------------------------------------------------------------------------------
# Rows


def test_an_untouched_journal_verifies(scene: Scene) -> None:
    report = scene.verified(scene.head)
    assert report == VerifyReport(ok=True, sealed=SEALED, unsealed=3, archived=0, head=scene.head, problems=())
    assert scene.head.seal == BLOCKS
    assert scene.head.rows == SEALED


EDITS = {
    "machine": "GRANT", "subject": 12345, "version": 77, "source": "failed", "target": "failed", "event": "claim",
    "actor": "tests ", "reason": None, "attempt": 1, "move_id": "another", "grant_id": 1, "maintenance_id": 1,
    "at": "2026-03-14T09:26:53.589794Z", "status_from": "LEASED", "status_to": "ABORTED",
}  # fmt: skip


@pytest.mark.req("G-23")
@pytest.mark.parametrize("seq, column", [(1, "actor"), *((20, column) for column in EDITS), (40, "actor")])
def test_an_edited_row(scene: Scene, seq: int, column: str) -> None:
    """A finding names its block, its first and last row, and their times."""
    scene.set(seq, **{column: EDITS[column]})
    n = (seq - 1) // BLOCK + 1
    first, last = block(n)
    [problem] = scene.verified().problems
    edited = column == "at"
    assert (problem.kind, problem.seal, problem.seq, problem.to_seq) == ("block_differs", n, first, last)
    assert (problem.at, problem.to_at) == (AT, str(EDITS["at"]) if edited else AT)
    assert f"sealed at {AT}" in problem.detail


def test_every_column_is_sealed() -> None:
    assert {*EDITS, "seq", "epoch", "xid"} == {*COLUMNS}


@pytest.mark.req("G-23")
def test_an_edited_number(scene: Scene) -> None:
    scene.set(20, seq=10_000)
    # By its transaction it belongs to the next block on PostgreSQL; where that does not count, to what comes last.
    elsewhere = [] if scene.store.one_writer else [("row_inserted", 4, 10_000, 10_000)]
    assert sorted(scene.found()) == sorted([("row_missing", 3, 20, 20), *elsewhere])


@pytest.mark.parametrize("seq", [-1, 0])
def test_a_sequence_number_outside_the_valid_range(scene: Scene, seq: int) -> None:
    if scene.store.one_writer:
        scene.run("PRAGMA ignore_check_constraints = ON")
    scene.set(20, seq=seq)
    if scene.store.one_writer:
        scene.run("PRAGMA ignore_check_constraints = OFF")
    inserted = 1 if scene.store.one_writer else 3  # the block that its key falls into
    kinds = sorted(scene.found(), key=repr)
    assert ("row_missing", 3, 20, 20) in kinds
    assert ("row_inserted", inserted, seq, seq) in kinds
    assert len(kinds) == 2


@pytest.mark.req("G-23")
@pytest.mark.parametrize("epoch, inserted", [(0, [("row_inserted", 1, 20, 20)]), (2, [])])
def test_an_edited_epoch(scene: Scene, epoch: int, inserted: list[Any]) -> None:
    scene.set(20, epoch=epoch)
    report = scene.verified()
    assert sorted((p.kind, p.seal, p.seq, p.to_seq) for p in report.problems) == [*inserted, ("row_missing", 3, 20, 20)]
    assert (report.sealed, report.unsealed) == (SEALED - 1, 3 if inserted else 4)


@pytest.mark.req("G-23")
def test_an_edited_transaction(scene: Scene) -> None:
    scene.set(20, xid=scene.xids[0] if not scene.store.one_writer else 1)
    # Later than everything on SQLite, where all rows have transaction 0; of the first block's on PostgreSQL.
    elsewhere = [] if scene.store.one_writer else [("row_inserted", 2, 20, 20)]
    assert sorted(scene.found()) == sorted([("row_missing", 3, 20, 20), *elsewhere])


@pytest.mark.req("G-23")
@pytest.mark.parametrize("seq", [1, 20, 24, 40])
def test_a_deleted_row(scene: Scene, seq: int) -> None:
    scene.run("DELETE FROM holdfast_journal WHERE seq = ?", seq)
    [problem] = scene.verified().problems
    n = (seq - 1) // BLOCK + 1
    assert (problem.kind, problem.seal, problem.seq, problem.to_seq) == ("row_missing", n, seq, seq)
    assert re.findall(r"\d+", problem.detail)[:3] == ["1", "8", str(seq)]  # one row of eight, and its number


@pytest.mark.req("G-23")
def test_deleted_blocks(scene: Scene) -> None:
    scene.run("DELETE FROM holdfast_journal WHERE seq BETWEEN 9 AND 24")
    assert scene.found() == [("row_missing", 2, 9, 16), ("row_missing", 3, 17, 24)]


@pytest.mark.req("G-23")
def test_a_journal_that_is_cut_off(scene: Scene) -> None:
    scene.run("DELETE FROM holdfast_journal WHERE seq > 38")
    report = scene.verified()
    assert [(p.kind, p.seal, p.seq, p.to_seq) for p in report.problems] == [("row_missing", 5, 39, 40)]
    assert (report.sealed, report.unsealed) == (38, 0)


@pytest.mark.req("G-23")
def test_a_journal_that_is_gone(scene: Scene) -> None:
    scene.run("DELETE FROM holdfast_journal")
    assert scene.found() == [("row_missing", n, *block(n)) for n in range(1, 6)]


@pytest.mark.req("G-23")
def test_an_inserted_row(scene: Scene) -> None:
    scene.insert(seq=9_000, epoch=0)
    scene.insert(seq=9_001, version=100, xid=scene.xids[1], epoch=0 if scene.store.one_writer else 1)
    together = [("row_inserted", 1, 9_000, 9_001)]
    apart = [("row_inserted", 1, 9_000, 9_000), ("row_inserted", 3, 9_001, 9_001)]
    assert scene.found() == (together if scene.store.one_writer else apart)


def test_a_row_inserted_among_the_numbers_of_its_block(scene: Scene) -> None:
    """Where numbers were left out, as PostgreSQL does, there is room for a row."""
    [row] = scene.run(f"SELECT {', '.join(COLUMNS)} FROM holdfast_journal WHERE seq = 20")
    scene.run("DELETE FROM holdfast_journal WHERE seq = 20")
    rewrite_all(scene.client)
    assert scene.found() == []
    marks = ", ".join("?" for _ in row)
    scene.run(f"INSERT INTO holdfast_journal ({', '.join(COLUMNS)}) VALUES ({marks})", *row)
    [problem] = scene.verified().problems
    assert (problem.kind, problem.seal, problem.seq, problem.to_seq) == ("row_inserted", 3, 17, 24)
    assert re.findall(r"\d+", problem.detail)[:2] == ["1", "7"]  # one row more than the seven of the seal


@pytest.mark.req("G-23")
@pytest.mark.parametrize("one, other, differing", [(18, 23, [3]), (1, 40, [1, 5]), (8, 9, [1, 2])])
def test_two_rows_that_changed_places(scene: Scene, one: int, other: int, differing: list[int]) -> None:
    columns = ("machine", "subject", "version", "source", "target", "event", "actor", "reason", "move_id", "at")
    rows = {
        seq: scene.run(f"SELECT {', '.join(columns)} FROM holdfast_journal WHERE seq = ?", seq)[0]
        for seq in (one, other)
    }
    scene.set(one, version=1_000)  # so that they never are the same
    scene.set(other, **dict(zip(columns, rows[one], strict=True)))
    scene.set(one, **dict(zip(columns, rows[other], strict=True)))
    assert scene.found() == [("block_differs", n, *block(n)) for n in differing]


@pytest.mark.req("G-23")
def test_two_numbers_that_changed_places(scene: Scene) -> None:
    scene.set(18, seq=90_000)
    scene.set(23, seq=18)
    scene.set(90_000, seq=23)
    assert scene.found() == [("block_differs", 3, 17, 24)]


def test_a_row_that_was_replaced(scene: Scene) -> None:
    scene.run("DELETE FROM holdfast_journal WHERE seq = 20")
    scene.set(21, seq=20)
    scene.set(22, seq=21)
    assert scene.found() == [("row_missing", 3, 22, 22)]


def test_bytes_that_are_not_valid_text(scene: Scene) -> None:
    """SQLite stores any bytes as text; PostgreSQL refuses them."""
    if not scene.store.one_writer:
        with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
            scene.run("UPDATE holdfast_journal SET reason = convert_from('\\xff41', 'UTF8') WHERE seq = 20")
        return
    scene.run("UPDATE holdfast_journal SET reason = CAST(x'ff41' AS TEXT) WHERE seq IN (20, 21, 42)")
    report = scene.verified()
    assert [(p.kind, p.seal, p.seq) for p in report.problems] == [
        ("row_changed", None, 20),
        ("row_changed", None, 21),
        ("row_missing", 3, 17),
        ("row_changed", None, 42),
    ]


def test_rows_that_are_not_sealed_yet_are_not_verified(scene: Scene) -> None:
    """Seals prove nothing about rows that came after the last one: seal often."""
    scene.set(42, actor="somebody else")
    scene.run("DELETE FROM holdfast_journal WHERE seq = 43")
    report = scene.verified(scene.head)
    assert (report.ok, report.unsealed) == (True, 2)


def test_a_list_of_problems_has_an_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.audit.seals.problems.LISTED_MAX", 50)
    for n in range(57):
        # Every second row is old, so that no two are adjacent.
        scene.insert(seq=10_000 + 2 * n, version=1000 + 2 * n, epoch=0)
        scene.insert(seq=10_001 + 2 * n, version=1001 + 2 * n, epoch=3)
    problems = scene.verified().problems
    assert len(problems) == 51
    assert problems[-1] == SealProblem(kind="more", detail="7 more problems are not listed")


# ---------------------------------------------------------------------------------------------------------------------
# Seals


SEAL_EDITS = {
    "format": 1, "epoch": 2, "last_xid": 999_999, "last_seq": 25, "low_seq": 18, "high_seq": 23, "rows": 7,
    "digest": "0" * 64, "sealed_at": "2026-03-14T09:26:53.589794Z",
}  # fmt: skip


@pytest.mark.req("G-23")
@pytest.mark.parametrize("column", SEAL_EDITS)
def test_an_edited_seal(scene: Scene, column: str) -> None:
    scene.run(f"UPDATE holdfast_seals SET {column} = ? WHERE seal_id = 3", SEAL_EDITS[column])
    assert scene.found() == [("seal_changed", 3, None, None)]


@pytest.mark.req("G-23")
def test_the_links_of_an_edited_seal(scene: Scene) -> None:
    scene.run("UPDATE holdfast_seals SET hash = ? WHERE seal_id = 3", "0" * 64)
    assert scene.found() == [("seal_changed", 3, None, None), ("seal_order", 4, None, None)]
    scene.put_back()
    scene.run("UPDATE holdfast_seals SET previous = ? WHERE seal_id = 3", "0" * 64)
    assert scene.found() == [("seal_order", 3, None, None), ("seal_changed", 3, None, None)]
    scene.put_back()
    scene.run("UPDATE holdfast_seals SET seal_id = 30 WHERE seal_id = 3")
    assert scene.found() == [
        ("seal_missing", 3, None, None),
        ("seal_missing", 6, None, None),
        ("seal_changed", 30, None, None),
        ("head_differs", 30, None, None),
    ]


@pytest.mark.req("G-23")
@pytest.mark.parametrize("column", ["epoch", "last_xid", "last_seq", "low_seq"])
def test_a_last_seal_with_a_number_below_all(scene: Scene, column: str) -> None:
    scene.run(f"UPDATE holdfast_seals SET {column} = -1 WHERE seal_id = 5")
    assert scene.found() == [("seal_changed", 5, None, None)]


def test_a_seal_over_rows_of_an_unknown_format(scene: Scene) -> None:
    scene.run("UPDATE holdfast_seals SET format = 3 WHERE seal_id = 3")
    rewrite_all(scene.client, links_only=True)
    assert scene.found() == [("seal_format", 3, None, None)]


def test_every_column_of_a_seal_was_edited() -> None:
    horizons = {"horizon_xid", "horizon_seq"}  # see below
    assert {*SEAL_EDITS, "hash", "previous", "seal_id"} == {*SEAL_COLUMNS} - horizons


# ---------------------------------------------------------------------------------------------------------------------
# Hints, which no hash covers

HORIZONS = {
    "beyond all": ("horizon_seq = 1000000000", [1, 2, 3, 4, 5]),
    "beyond all, of the first transaction": ("horizon_seq = 1000000000, horizon_xid = 0", [1, 2, 3, 4, 5]),
    "the next rows": ("horizon_seq = 42, horizon_xid = 0 WHERE seal_id = 5", [5]),
    "below its rows": ("horizon_seq = 23 WHERE seal_id = 3", [3]),
    "a transaction to come": ("horizon_xid = 1000000000000 WHERE seal_id = 5", [5]),
    "no transaction": ("horizon_xid = -1 WHERE seal_id = 2", [2]),
    "rows of later transactions": ("horizon_seq = 40 WHERE seal_id = 2", [2]),
}


def hints(store: Store[Any]) -> set[str]:
    """Return the subjects of what a check finds wrong with the seals."""
    return {violation.subject for violation in check(store, only=["seals_chained"]).violations}


@pytest.mark.req("G-23")
@pytest.mark.parametrize("lie", HORIZONS)
def test_an_impossible_horizon_is_found_and_ignored(scene: Scene, lie: str) -> None:
    how, found = HORIZONS[lie]
    scene.run(f"UPDATE holdfast_seals SET {how}")
    assert scene.found(scene.head) == [("seal_changed", number, None, None) for number in found]
    assert hints(scene.store) == {f"SEAL {number}" for number in found}
    assert [(one.low_seq, one.high_seq) for one in seal(scene.store)] == [(41, 43)]
    assert loose_rows(scene.store) == []
    assert {kind for kind, *_ in scene.found()} == {"seal_changed"}


@pytest.mark.req("G-23")
@pytest.mark.parametrize("value", ["1 1000000000", "1 42", "1 43", f"1 {'9' * 20}", "7 3", "nonsense", "", "1"])
def test_a_floor_that_matches_no_seal_is_found_and_ignored(scene: Scene, value: str) -> None:
    scene.run("DELETE FROM holdfast_meta WHERE name = 'seal_floor'")
    scene.run("INSERT INTO holdfast_meta (name, value) VALUES ('seal_floor', ?)", value)
    assert scene.found(scene.head) == [("floor_differs", None, None, None)]
    assert hints(scene.store) == {"LEDGER"}
    assert [(one.low_seq, one.high_seq) for one in seal(scene.store)] == [(41, 43)]
    assert loose_rows(scene.store) == []


def test_forged_hints_that_agree_are_found_by_the_rows_they_hide(scene: Scene) -> None:
    """Where writers overlap, a sealer may have written this; then no row can be where these are."""
    scene.run("UPDATE holdfast_seals SET horizon_seq = 42 WHERE seal_id = 5")
    scene.run("DELETE FROM holdfast_meta WHERE name = 'seal_floor'")
    scene.run("INSERT INTO holdfast_meta (name, value) VALUES ('seal_floor', '1 42')")
    if scene.store.one_writer:
        assert scene.found() == [("seal_changed", 5, None, None)]
        assert hints(scene.store) == {"SEAL 5"}
    else:
        assert scene.found() == [("floor_differs", None, 41, 42)]
        assert hints(scene.store) == {"LEDGER"}


@pytest.mark.req("G-23")
@pytest.mark.parametrize("gone", [1, 3, 5])
def test_a_deleted_seal(scene: Scene, gone: int) -> None:
    scene.run("DELETE FROM holdfast_seals WHERE seal_id = ?", gone)
    report = scene.verified()
    assert [(p.kind, p.seal) for p in report.problems] == [("seal_missing", gone)]
    assert report.sealed == SEALED - BLOCK


@pytest.mark.req("G-23")
@pytest.mark.parametrize("kept", [0, 1, 4])
def test_seals_that_are_cut_off(scene: Scene, kept: int) -> None:
    scene.run("DELETE FROM holdfast_seals WHERE seal_id > ?", kept)
    report = scene.verified()
    [problem] = report.problems
    assert (problem.kind, problem.seal) == ("seal_missing", kept + 1)
    assert (report.sealed, report.unsealed) == (BLOCK * kept, ROWS - BLOCK * kept)


@pytest.mark.req("G-23")
def test_seals_that_are_cut_off_with_the_note_of_them(scene: Scene) -> None:
    """The ledger alone cannot detect this: a saved head can."""
    [_, _, third, *_] = seals(scene.store)
    scene.run("DELETE FROM holdfast_seals WHERE seal_id > 3")
    scene.run("UPDATE holdfast_meta SET value = ? WHERE name = 'seal_head'", f"3 {third.hash}")
    scene.run("DELETE FROM holdfast_meta WHERE name = 'seal_floor'")
    assert scene.found() == []
    assert scene.found(scene.head) == [("head_differs", 5, None, None)]


@pytest.mark.req("G-23")
def test_an_inserted_seal(scene: Scene) -> None:
    last = seals(scene.store)[-1]
    forged = msgspec.structs.replace(last, seal_id=6, last_seq=last.last_seq + 1, low_seq=41, high_seq=41, rows=1)
    marks = ", ".join("?" for _ in SEAL_COLUMNS)
    scene.run(f"INSERT INTO holdfast_seals VALUES ({marks})", *msgspec.structs.astuple(forged))
    assert scene.found() == [
        ("seal_order", 6, None, None),
        ("seal_changed", 6, None, None),
        ("head_differs", 6, None, None),
    ]


@pytest.mark.req("G-23")
def test_two_seals_that_changed_places(scene: Scene) -> None:
    for one, other in ((2, 99), (4, 2), (99, 4)):
        scene.run("UPDATE holdfast_seals SET seal_id = ? WHERE seal_id = ?", other, one)
    assert scene.found() == [
        ("seal_order", 2, None, None),
        ("seal_changed", 2, None, None),
        ("seal_order", 3, None, None),
        ("seal_order", 4, None, None),
        ("seal_changed", 4, None, None),
        ("seal_order", 5, None, None),
    ]


def test_a_seal_that_ends_before_its_predecessor(scene: Scene) -> None:
    """Its own hash is right, and it follows, but the rows that it claims are closed already."""
    scene.run("UPDATE holdfast_seals SET last_seq = 8, last_xid = ? WHERE seal_id = 3", scene.xids[0])
    rewrite_all(scene.client, links_only=True)
    assert scene.found() == [("seal_order", 3, None, None)]


@pytest.mark.parametrize("value", [None, "", "nonsense", "5 0000", "4 0000"])
def test_a_note_of_the_end_that_was_changed(scene: Scene, value: str | None) -> None:
    if value is None:
        scene.run("DELETE FROM holdfast_meta WHERE name = 'seal_head'")
    else:
        scene.run("UPDATE holdfast_meta SET value = ? WHERE name = 'seal_head'", value)
    assert scene.found() == [("head_differs", 5, None, None)]


# ---------------------------------------------------------------------------------------------------------------------
# All of it


@pytest.mark.req("G-23")
@pytest.mark.parametrize(
    "how",
    [
        lambda scene: scene.set(20, actor="somebody else"),
        lambda scene: scene.run("DELETE FROM holdfast_journal WHERE seq = 20"),
        lambda scene: scene.set(1, at="2020-01-01T00:00:00.000000Z"),
    ],
    ids=["edited", "deleted", "the first row edited"],
)
def test_history_rewritten_with_all_its_hashes_is_found_through_a_head(
    scene: Scene, how: Callable[[Scene], None], tmp_path: Path
) -> None:
    """The owner of the database can write a sound chain, but not the one of the saved head."""
    private, public = keys.make_keys(tmp_path / "key")
    kept = tmp_path / "head.json"
    kept.write_bytes(msgspec.json.encode(heads.sign(scene.head, keys.private_key(private))))
    how(scene)
    rewrite_all(scene.client)
    assert scene.found() == []
    assert scene.found(scene.head) == [("head_differs", 5, None, None)]
    assert scene.found(heads.read_heads(kept, public_key=public)[0].head) == [("head_differs", 5, None, None)]


def test_a_head_from_the_middle_of_the_chain(scene: Scene) -> None:
    third = seals(scene.store)[2]
    early = msgspec.structs.replace(scene.head, seal=3, hash=third.hash, rows=3 * BLOCK)
    assert scene.found(early) == []
    scene.run("DELETE FROM holdfast_seals WHERE seal_id = 3")
    assert scene.found(early) == [("seal_missing", 3, None, None), ("head_differs", 3, None, None)]
    scene.put_back()
    # A head does not cover history after it: a rewrite there is not found by it.
    scene.set(40, actor="somebody else")
    rewrite_all(scene.client)
    assert scene.found(early) == []
    assert scene.found(scene.head) == [("head_differs", 5, None, None)]


def test_several_heads_are_all_compared_with_the_chain(scene: Scene) -> None:
    third = seals(scene.store)[2]
    early = msgspec.structs.replace(scene.head, seal=3, hash=third.hash, rows=3 * BLOCK, sealed_at=third.sealed_at)
    assert verify(scene.store, head=[early, scene.head, early]).ok
    altered = [msgspec.structs.replace(one, hash="0" * 64) for one in (scene.head, early)]
    late = msgspec.structs.replace(scene.head, seal=9)
    found = verify(scene.store, head=[*altered, early, late]).problems
    assert [(p.kind, p.seal) for p in found] == [("head_differs", 3), ("head_differs", 5), ("head_differs", 9)]
    other = msgspec.structs.replace(scene.head, ledger_id="0" * 32)
    with pytest.raises(HeadInvalidError):
        verify(scene.store, head=[early, other])


@pytest.mark.parametrize(
    "field, value", [("rows", 39), ("epoch", 2), ("sealed_at", "2020-01-01T00:00:00.000000Z"), ("hash", "0" * 64)]
)
def test_a_head_that_disagrees_with_its_seal(scene: Scene, field: str, value: object) -> None:
    altered = msgspec.structs.replace(scene.head, **{field: value})
    assert scene.found(altered) == [("head_differs", 5, None, None)]


def test_a_head_of_an_empty_chain_and_a_head_beyond_the_chain(scene: Scene) -> None:
    from holdfast.audit.seals.sealer import genesis

    nothing = Head(
        ledger_id=scene.head.ledger_id, epoch=1, seal=0, hash=genesis(scene.head.ledger_id), rows=0, sealed_at=None
    )
    assert scene.found(nothing) == []
    assert scene.found(msgspec.structs.replace(nothing, hash="0" * 64)) == [("head_differs", None, None, None)]
    later = msgspec.structs.replace(scene.head, seal=6)
    assert scene.found(later) == [("head_differs", 6, None, None)]


def test_a_head_of_another_ledger(scene: Scene) -> None:
    other = msgspec.structs.replace(scene.head, ledger_id="0" * 32)
    with pytest.raises(HeadInvalidError) as refused:
        verify(scene.store, head=other)
    assert refused.value.context == {"head": "0" * 32, "ledger": scene.head.ledger_id}


def test_tampering_is_found_by_verify_after_the_triggers_are_put_back(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        submit(store)
        seal(store)
    with guards_off(ledger_url) as client:
        assert client.changed("UPDATE holdfast_journal SET actor = 'somebody else' WHERE seq = 3") == 1
    with open_store(ledger_url) as store:
        assert [(p.kind, p.seal) for p in verify(store).problems] == [("block_differs", 1)]
        assert journal(store)[2][9] == "somebody else"
