"""Seals and archives: an archived block may be gone, and its file is verified against the same seals."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.seals.sealer import seal
from holdfast.audit.seals.verify import VerifyReport, verify
from holdfast.core.commands import Complete
from holdfast.engine.upkeep.retention import GcReport, Retention, gc
from holdfast.store import Lease, Store, create_store
from holdfast.testing import VirtualClock
from tests.audit.sealing import COLUMNS, guards_off, journal, rewrite_all, seals, submit

pytestmark = pytest.mark.attack("files")

EDGE = 20_000_000  # where the first partition of the journal ends on PostgreSQL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "archives"
    directory.mkdir()
    return directory


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(ledger_url: str, clock: VirtualClock) -> Iterator[Store[Any]]:
    with create_store(ledger_url, clock) as opened:
        yield opened


def work(store: Store[Any], jobs: int = 3) -> None:
    """Submit jobs, complete them, and seal what that wrote: three rows a job."""
    submit(store, jobs)
    with store.transaction() as transaction:
        attempts = transaction.executions.claim(Lease(owner="w", seconds=60, n=jobs))
        transaction.executions.move([(a, Complete(a.execution.lease_token, '"r"')) for a in attempts], actor="w")
    seal(store)


def collect(store: Store[Any], clock: VirtualClock, folder: Path) -> GcReport:
    clock.advance(3600)
    return gc(store, Retention(finished_s=60, history_s=60, archive_dir=str(folder)), clock(), who="ann")


def kinds(report: VerifyReport) -> list[tuple[str, int | None]]:
    assert report.ok == (not report.problems)
    return [(problem.kind, problem.seal) for problem in report.problems]


@pytest.mark.req("G-23")
def test_archived_blocks_are_counted_and_verified_where_the_files_are_given(
    store: Store[Any], clock: VirtualClock, folder: Path
) -> None:
    work(store)
    work(store)
    collected = collect(store, clock, folder)
    [archive] = collected.archives
    assert archive.rows >= 18
    work(store)
    gone = archive.rows if store.one_writer else 0  # where the journal has partitions, rows wait for theirs to go
    for report in (verify(store), verify(store, archives=folder)):
        assert kinds(report) == []
        assert report.archived == gone
        assert report.sealed + report.unsealed == len(journal(store))
        assert report.head.rows == report.sealed + report.archived == sum(one.rows for one in seals(store))


def test_an_archive_that_is_missing_or_changed(store: Store[Any], clock: VirtualClock, folder: Path) -> None:
    work(store)
    [archive] = collect(store, clock, folder).archives
    file = folder / archive.file
    kept = file.read_bytes()
    file.unlink()
    assert kinds(verify(store)) == []
    assert ("archive_missing", 1) in kinds(verify(store, archives=folder))
    altered = gzip.compress(gzip.decompress(kept).replace(b'"actor-none"', b"").replace(b'"tests"', b'"other"'))
    for damage in (kept[:-20], kept + b"x", altered, b"", b"no archive"):
        file.write_bytes(damage)
        assert ("archive_changed", 1) in kinds(verify(store, archives=folder))
    file.write_bytes(kept)
    assert kinds(verify(store, archives=folder)) == []


def test_an_archive_of_other_seals(ledger_url: str, clock: VirtualClock, folder: Path) -> None:
    """The file is whole, and the record of it names it; but the ledger's seals were rewritten since."""
    with create_store(ledger_url, clock) as store:
        work(store)
        [archive] = collect(store, clock, folder).archives
    with guards_off(ledger_url) as client:
        if store.one_writer:
            client.run("UPDATE holdfast_seals SET digest = ? WHERE seal_id = 1", "0" * 64)
            rewrite_all(client, links_only=True)
        else:
            client.run("UPDATE holdfast_journal SET actor = 'other' WHERE seq = 1")
            rewrite_all(client)
    with create_store(ledger_url, clock) as store:
        assert kinds(verify(store)) == []
        problems = verify(store, archives=folder).problems
        assert [(problem.kind, problem.seal) for problem in problems] == [("archive_differs", 1)]
        assert archive.file in problems[0].detail


def test_a_record_that_does_not_fit_its_file(ledger_url: str, clock: VirtualClock, folder: Path) -> None:
    with create_store(ledger_url, clock) as store:
        work(store)
        [archive] = collect(store, clock, folder).archives
    with guards_off(ledger_url) as client:
        client.run("UPDATE holdfast_archives SET rows = rows + 1")
    with create_store(ledger_url, clock) as store:
        assert kinds(verify(store, archives=folder)) == [("archive_differs", 1)]
    assert archive.sha256


@pytest.mark.req("G-23")
def test_rows_that_were_deleted_and_called_archived(ledger_url: str, clock: VirtualClock, folder: Path) -> None:
    """A forged record of an archive: the journal has no note of it, and there is no file."""
    with create_store(ledger_url, clock) as store:
        work(store)
        work(store)
        first = seals(store)[0]
    with guards_off(ledger_url) as client:
        client.run("DELETE FROM holdfast_journal WHERE seq <= ?", first.high_seq)
        client.run("INSERT INTO holdfast_archives VALUES (1, 1, 1, 'a.jsonl.gz', 'beef', 21, 0, 'now')")
    with create_store(ledger_url, clock) as store:
        assert kinds(verify(store)) == [("archive_unnoted", 1)]
        assert kinds(verify(store, archives=folder)) == [("archive_missing", 1), ("archive_unnoted", 1)]


def test_one_row_that_is_missing_from_an_archived_block(store: Store[Any], clock: VirtualClock, folder: Path) -> None:
    """If some rows of an archived block are still stored, none of them may be missing."""
    if store.one_writer:
        return  # there the whole block is gone: see above
    work(store)
    [archive] = collect(store, clock, folder).archives
    with guards_off(store.url) as client:
        client.run("DELETE FROM holdfast_journal WHERE seq = 5")
    assert archive.rows > 5
    assert kinds(verify(store)) == [("row_missing", 1)]


@pytest.mark.req("G-23")
def test_a_row_that_was_put_into_an_archived_block(ledger_url: str, clock: VirtualClock, folder: Path) -> None:
    with create_store(ledger_url, clock) as store:
        work(store)
        first = journal(store)[4]
        [archive] = collect(store, clock, folder).archives
    forged = {**dict(zip(COLUMNS, first, strict=True)), "version": 99}
    if not store.one_writer:  # where archived rows wait for their partition, its number must be a new one
        forged["seq"] = -5
    with guards_off(ledger_url) as client:
        marks = ", ".join("?" for _ in forged)
        client.run(f"INSERT INTO holdfast_journal ({', '.join(forged)}) VALUES ({marks})", *forged.values())
    with create_store(ledger_url, clock) as store:
        for report in (verify(store), verify(store, archives=folder)):
            [problem] = report.problems
            assert (problem.kind, problem.seal) == ("row_inserted", 1)
            assert (problem.seq, problem.to_seq) == (forged["seq"], forged["seq"])
            if store.one_writer:
                assert "archived" in problem.detail
    assert archive.rows > 5


@pytest.mark.req("G-23")
def test_blocks_that_lie_across_the_edge_of_a_partition(
    new_postgres_ledger: str, clock: VirtualClock, folder: Path
) -> None:
    """The first partition goes with some rows of a block; the others stay, and are compared with the file."""
    with create_store(new_postgres_ledger, clock) as store:
        with store.transaction() as transaction:
            transaction.execute(f"SELECT setval('holdfast_journal_seq', {EDGE - 11})")
            transaction.retention.extend_journal()
        work(store, 7)  # numbers from EDGE - 10 to EDGE + 10
        for _ in range(2):
            work(store)
        across = seals(store)[0]
        assert (across.low_seq, across.high_seq) == (EDGE - 10, EDGE + 10)
        collected = collect(store, clock, folder)
        if not collected.partitions:  # an older transaction was open for a moment
            collected = collect(store, clock, folder)
        assert collected.partitions == ("holdfast_journal_p0",)
        assert [row[0] for row in journal(store)][:3] == [EDGE, EDGE + 1, EDGE + 2]
        for report in (verify(store), verify(store, archives=folder)):
            assert kinds(report) == []
            assert report.archived == across.rows
    with guards_off(new_postgres_ledger) as client:
        client.run("UPDATE holdfast_journal SET actor = 'other' WHERE seq = ?", EDGE + 2)
    with create_store(new_postgres_ledger, clock) as store:
        assert kinds(verify(store)) == []  # this cannot be seen without the file
        [problem] = verify(store, archives=folder).problems
        assert (problem.kind, problem.seal) == ("block_differs", 1)
    with guards_off(new_postgres_ledger) as client:
        client.run("DELETE FROM holdfast_journal WHERE seq = ?", EDGE + 2)
    with create_store(new_postgres_ledger, clock) as store:
        assert kinds(verify(store, archives=folder)) == [("block_differs", 1)]


def test_blocks_that_leave_while_they_are_verified(store: Store[Any], clock: VirtualClock, folder: Path) -> None:
    """The pass has read a part of a block when the rest of it is archived and removed."""
    work(store, 10)
    work(store, 10)
    left: list[GcReport] = []

    def leave(reached: int, last: int) -> None:
        assert reached <= last
        if not left:
            left.append(collect(store, clock, folder))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.audit.seals.verify.PAGE", 13)
        report = verify(store, on_progress=leave)
    assert len(left[0].archives) == 1
    assert kinds(report) == []
    assert report.sealed + report.archived >= 60


def test_the_note_of_an_old_archive_may_be_in_a_later_one(store: Store[Any], clock: VirtualClock, folder: Path) -> None:
    for _ in range(3):
        work(store)
        assert collect(store, clock, folder).archives
    with store.reading() as reading:
        archives = reading.seals.archives()
    assert len(archives) == 3
    assert kinds(verify(store)) == []
    assert kinds(verify(store, archives=folder)) == []
    header = json.loads(gzip.decompress((folder / archives[1].file).read_bytes()).splitlines()[0])
    assert header["first_seal"] == archives[0].last_seal + 1
