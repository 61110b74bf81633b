"""The journal's partitions on PostgreSQL: the next one guards as the first one does, an archived one is dropped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Ledger
from holdfast.audit.check.runner import check
from holdfast.audit.seals.sealer import seal
from holdfast.audit.seals.verify import verify as verify_seals
from holdfast.core.errors import EnforcementDriftError, RefusedByDatabaseError
from holdfast.core.machines import JOB
from holdfast.engine.upkeep.retention import GcReport, HeldBlock, Retention, extend_journal, gc
from holdfast.store import open_store
from holdfast.store.enforcement import Refusal
from holdfast.store.migrations import Rules, verify
from holdfast.store.postgres.partitions import Partition, partitions
from holdfast.testing import VirtualClock, virtual_world
from tests.enforcement.raw import Client, Hand
from tests.store.verbs import together

END = 20_000_000  # of the first partition
P0, P1 = "holdfast_journal_p0", "holdfast_journal_p1"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger(new_postgres_ledger: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    # Long enough to distinguish a statement that waited for a lock from one on a slow machine.
    monkeypatch.setattr("holdfast.store.postgres.store.LOCK_S", 60)
    with Ledger(new_postgres_ledger, world=virtual_world(clock)) as ledger:
        yield ledger


@pytest.fixture
def shell(ledger: Ledger) -> Iterator[psycopg.Connection[Any]]:
    """A SQL shell on the ledger's database, which commits each statement."""
    with psycopg.connect(ledger.store.url, autocommit=True) as connection:
        yield connection


def found(ledger: Ledger) -> list[Partition]:
    with ledger.store.reading() as reading:
        return partitions(reading.connection, "public")


def names(ledger: Ledger) -> list[str]:
    return [partition.name for partition in found(ledger)]


def reach(shell: psycopg.Connection[Any], seq: int) -> None:
    """Let the next journal row have this number."""
    shell.execute("SELECT setval('holdfast_journal_seq', %s, false)", (seq,))


def work(ledger: Ledger, clock: VirtualClock, *keys: str) -> None:
    """Do a job for each key, three rows each, seal them, and let time pass."""
    for key in keys:
        ledger.submit("noop", {}, client="c", key=key)
        ledger.run_until_idle()
    seal(ledger.store)
    clock.advance(10)


def collect(ledger: Ledger, folder: Path) -> GcReport:
    return gc(ledger.store, Retention(finished_s=1, history_s=1, archive_dir=str(folder)), who="ann")


def require_sound(ledger: Ledger, folder: Path) -> None:
    verify(ledger.store)
    assert check(ledger.store).violations == ()
    assert verify_seals(ledger.store, archives=folder).problems == ()


# ---------------------------------------------------------------------------------------------------------------------
# Adding


def test_the_next_partition_is_added_once_the_last_is_half_full(ledger: Ledger, shell: psycopg.Connection[Any]) -> None:
    assert (extend_journal(ledger.store), names(ledger)) == (None, [P0])
    reach(shell, END // 2 - 1)
    assert (extend_journal(ledger.store), names(ledger)) == (None, [P0])
    reach(shell, END // 2)
    assert extend_journal(ledger.store) == P1
    assert (extend_journal(ledger.store), names(ledger)) == (None, [P0, P1])
    assert found(ledger)[1] == Partition(P1, END, END + 5_000_000)
    reach(shell, END + 11_000_000)  # no keeper ran on this ledger for long
    assert extend_journal(ledger.store) == "holdfast_journal_p3"
    assert [partition.end for partition in found(ledger)] == [END + n * 5_000_000 for n in range(4)]
    with open_store(ledger.store.url):
        pass


def test_writes_continue_in_the_next_partition_and_are_guarded_there(
    ledger: Ledger, shell: psycopg.Connection[Any], clock: VirtualClock
) -> None:
    reach(shell, END - 4)
    assert extend_journal(ledger.store) == P1
    work(ledger, clock, "a", "b", "c")
    [[first, last, rows]] = shell.execute(f"SELECT min(seq), max(seq), count(*) FROM {P1}").fetchall()
    assert (first, last, rows) == (END, END + 4, 5)
    with ledger.store.reading() as reading:
        assert [row.event for row in reading.journal.of(2)] == ["submit", "claim", "succeed"]
    assert verify_seals(ledger.store).problems == ()
    assert check(ledger.store).violations == ()
    verify(ledger.store)

    row = "(epoch, xid, machine, subject, version, target, event, actor, move_id, at)"
    values = "VALUES (1, 1, 'JOB', 1, 9, 'pending', 'submit', 'mallory', 'm', '2030-01-01')"
    forged = f"INSERT INTO {{}} (seq, {row[1:]} {values.replace('(1', f'({END + 1000}, 1', 1)}"
    for statement, refusal in (
        (f"INSERT INTO holdfast_journal {row} {values}", Refusal.WRITTEN_BY_HAND),
        (forged.format("holdfast_journal"), Refusal.WRITTEN_BY_HAND),
        (forged.format(P1), Refusal.WRITTEN_BY_HAND),
        (f"UPDATE {P1} SET actor = 'mallory'", Refusal.APPEND_ONLY),
        (f"UPDATE holdfast_journal SET actor = 'mallory' WHERE seq >= {END}", Refusal.APPEND_ONLY),
        (f"DELETE FROM {P1}", Refusal.APPEND_ONLY),
        (f"TRUNCATE {P1}", Refusal.NEVER_DELETED),
    ):
        with pytest.raises(psycopg.Error) as refused:
            shell.execute(statement)
        assert refused.value.sqlstate == refusal, statement
    # A trigger of one's own, through which a hand-written row would come from a deeper level.
    shell.execute(
        "CREATE FUNCTION forge() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
        f"{forged.format(P1)}; RETURN NEW; END$$; CREATE TABLE lever (n integer);"
        "CREATE TRIGGER pull AFTER INSERT ON lever FOR EACH ROW EXECUTE FUNCTION forge()"
    )
    with pytest.raises(psycopg.Error) as refused:
        shell.execute("INSERT INTO lever VALUES (1)")
    assert refused.value.sqlstate == Refusal.WRITTEN_BY_HAND


def test_a_ledger_that_ran_out_of_partitions_refuses_work_until_it_has_another(
    ledger: Ledger, shell: psycopg.Connection[Any]
) -> None:
    reach(shell, END)
    with pytest.raises(RefusedByDatabaseError) as refused:
        ledger.submit("noop", {}, client="c", key="a")
    assert isinstance(refused.value.__cause__, psycopg.errors.CheckViolation)
    assert refused.value.__cause__.diag.table_name == "holdfast_journal"
    assert extend_journal(ledger.store) == P1
    assert ledger.submit("noop", {}, client="c", key="a").is_new
    assert ledger.run_until_idle() == 1


@pytest.mark.parametrize(
    "damage, differs",
    [
        (f"DROP INDEX {P1}_subject", f"{P1}_subject"),
        (f"DROP INDEX {P1}_grant", f"{P1}_grant"),
        (f"DROP TRIGGER {P1}_written ON {P1}", f"{P1}_written"),
        (f"ALTER TABLE {P1} DISABLE TRIGGER {P1}_truncate", f"{P1}_truncate"),
        (f"ALTER TABLE {P1} DISABLE TRIGGER holdfast_journal_update", "holdfast_journal_update"),
    ],
)
def test_a_partition_that_lost_a_guard_is_seen_at_the_next_opening(
    ledger: Ledger, shell: psycopg.Connection[Any], damage: str, differs: str
) -> None:
    reach(shell, END // 2)
    extend_journal(ledger.store)
    shell.execute(damage)
    with pytest.raises(EnforcementDriftError) as drift:
        verify(ledger.store)
    assert drift.value.context == {"differs": [differs]}


def test_a_partition_is_added_beside_a_writer_that_takes_its_time(
    ledger: Ledger, shell: psycopg.Connection[Any]
) -> None:
    reach(shell, END // 2)
    writer = Client(ledger.store.url)
    Hand(writer).born(JOB)
    began = time.monotonic()
    assert extend_journal(ledger.store) == P1
    assert time.monotonic() - began < 30  # a statement that waited for the writer would give up after 60 s
    writer.commit()
    writer.close()
    with ledger.store.reading() as reading:
        assert len(reading.lists.jobs()) == 1


def test_keepers_at_once_add_one_partition(ledger: Ledger, shell: psycopg.Connection[Any]) -> None:
    reach(shell, END // 2)
    stores = [open_store(ledger.store.url) for _ in range(3)]
    added = together(*(lambda store=store: extend_journal(store) for store in stores))
    for store in stores:
        store.close()
    assert sorted(added, key=str) == [None, None, P1]


# ---------------------------------------------------------------------------------------------------------------------
# Dropping


@pytest.fixture
def crossed(ledger: Ledger, shell: psycopg.Connection[Any], clock: VirtualClock) -> Ledger:
    """A ledger that has gone on into its second partition."""
    reach(shell, END - 4)
    extend_journal(ledger.store)
    work(ledger, clock, "a", "b")
    assert shell.execute(f"SELECT (SELECT count(*) FROM {P0}), (SELECT count(*) FROM {P1})").fetchall() == [(4, 2)]
    return ledger


@pytest.mark.req("K-63")
def test_a_partition_is_dropped_once_all_its_rows_are_archived(
    crossed: Ledger, clock: VirtualClock, tmp_path: Path, shell: psycopg.Connection[Any]
) -> None:
    report = collect(crossed, tmp_path)
    # Which numbers were given out before is known only from a block that was sealed later, and is archived too.
    assert (report.blocks, report.partitions, names(crossed)) == (1, (), [P0, P1])
    work(crossed, clock, "c")
    report = collect(crossed, tmp_path)
    assert (report.partitions, report.held, names(crossed)) == ((P0,), None, [P1])
    [[dropped]] = shell.execute("SELECT reason FROM holdfast_journal WHERE event = 'drop_partition'").fetchall()
    assert dropped == f'{{"partition":"{P0}"}}'
    require_sound(crossed, tmp_path)
    work(crossed, clock, "d")
    assert crossed.submit("noop", {}, client="c", key="a").result_expired
    assert collect(crossed, tmp_path).partitions == ()  # the last one is never dropped
    require_sound(crossed, tmp_path)


def test_a_partition_with_a_row_that_is_not_archived_stays(
    crossed: Ledger, clock: VirtualClock, tmp_path: Path, shell: psycopg.Connection[Any]
) -> None:
    """The hint in the seals is not hashed: whatever it says, the rows themselves are read too."""
    collect(crossed, tmp_path)
    work(crossed, clock, "c")
    with crossed.store.reading() as reading:
        last = reading.seals.last()
    assert last is not None
    assert crossed.store.upkeep.archived_partition(last) == P0  # once that block is archived too
    shell.execute("ALTER TABLE holdfast_journal DISABLE TRIGGER USER")
    shell.execute(f"UPDATE {P0} SET xid = xid + 1000000 WHERE seq = {END - 1}")
    assert crossed.store.upkeep.archived_partition(last) is None
    shell.execute(f"UPDATE {P0} SET xid = xid - 1000000 WHERE seq = {END - 1}")
    assert (collect(crossed, tmp_path).partitions, names(crossed)) == ((P0,), [P1])


def test_an_impossible_horizon_drops_no_partition(
    crossed: Ledger, tmp_path: Path, shell: psycopg.Connection[Any]
) -> None:
    collect(crossed, tmp_path)
    shell.execute("ALTER TABLE holdfast_seals DISABLE TRIGGER USER")
    shell.execute("UPDATE holdfast_seals SET horizon_xid = 0, horizon_seq = 30000000")
    assert (collect(crossed, tmp_path).partitions, names(crossed)) == ((), [P0, P1])


def test_a_writer_that_has_a_number_of_the_partition_keeps_it(
    ledger: Ledger, clock: VirtualClock, tmp_path: Path, shell: psycopg.Connection[Any]
) -> None:
    reach(shell, END - 4)
    extend_journal(ledger.store)
    writer = Client(ledger.store.url)
    job_id = Hand(writer).born(JOB, updated_at=clock(), created_at=clock(), run_at=clock())
    for key in "abc":
        work(ledger, clock, key)
    assert collect(ledger, tmp_path) == GcReport(dry_run=False, finished=3)  # nothing could be sealed
    writer.commit()
    writer.close()
    clock.advance(10)
    report = collect(ledger, tmp_path)
    assert (report.blocks, report.held, report.partitions) == (0, HeldBlock(1, "JOB", job_id, "pending"), ())
    work(ledger, clock, "d")  # and that one with it
    report = collect(ledger, tmp_path)
    assert (report.held, report.partitions) == (None, (P0,))
    require_sound(ledger, tmp_path)


def test_a_drop_of_a_partition_gives_way_to_a_lock_without_an_error(
    crossed: Ledger, clock: VirtualClock, tmp_path: Path
) -> None:
    collect(crossed, tmp_path)
    work(crossed, clock, "c")
    with psycopg.connect(crossed.store.url) as reader:
        reader.execute("LOCK TABLE holdfast_journal IN ACCESS SHARE MODE")  # as any query does
        began = time.monotonic()
        report = collect(crossed, tmp_path)
        assert time.monotonic() - began < 30
    assert (report.blocks, report.partitions, names(crossed)) == (1, (), [P0, P1])
    verify(crossed.store)
    assert (collect(crossed, tmp_path).partitions, names(crossed)) == ((P0,), [P1])
    require_sound(crossed, tmp_path)


def test_an_opening_that_began_before_a_drop_sees_no_drift(
    crossed: Ledger, clock: VirtualClock, tmp_path: Path
) -> None:
    collect(crossed, tmp_path)
    work(crossed, clock, "c")
    with open_store(crossed.store.url) as opening, opening.reading() as reading:
        reading.execute("SELECT 1")  # from here on it sees the ledger as it is now
        assert collect(crossed, tmp_path).partitions == (P0,)
        assert opening.enforcement_drift(reading.connection, Rules(1, governed=False)) == []


def test_gcs_at_once_drop_a_partition_once(
    crossed: Ledger, clock: VirtualClock, tmp_path: Path, shell: psycopg.Connection[Any]
) -> None:
    collect(crossed, tmp_path)
    work(crossed, clock, "c")
    others = [Ledger(crossed.store.url, world=virtual_world(clock)) for _ in range(3)]
    for other in others:
        other.store  # noqa: B018 - opens it
    reports = together(*(lambda other=other: collect(other, tmp_path) for other in others))
    for other in others:
        other.close()
    assert [name for report in reports for name in report.partitions] == [P0]
    [[noted]] = shell.execute("SELECT count(*) FROM holdfast_journal WHERE event = 'drop_partition'").fetchall()
    assert (noted, names(crossed)) == (1, [P1])
    require_sound(crossed, tmp_path)
