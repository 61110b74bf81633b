"""Where a snapshot may be restored to, and where not; and what a restore leaves as it found it."""

from __future__ import annotations

import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.audit.files.restore import RestoreRequest, restore
from holdfast.audit.files.snapshot_diff import diff
from holdfast.audit.files.snapshot_verify import verify
from holdfast.audit.seals.sealer import seal
from holdfast.core.commands import GiveBack
from holdfast.core.errors import (
    EffectsMayBeNewerError,
    EnforcementDriftError,
    HoldfastError,
    InputError,
    LedgerNotEmptyError,
    NotALedgerError,
    RefusedError,
    SealsBrokenError,
    SnapshotInvalidError,
    StoreUnavailableError,
)
from holdfast.store import Declared, Lease, Submission, connect, create_store, open_store
from holdfast.store.tables import TABLES, table_named
from holdfast.testing import VirtualClock
from tests.audit.snapshots import NewUrl, forge, full_at_rest, many, pack, put, rows_of, taken
from tests.enforcement.raw import Client
from tests.enforcement.schema import everything_in

pytestmark = pytest.mark.attack("files")

pytest_plugins = ["tests.audit.places"]
EACH = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
EFFECTS = "CREATE TABLE effects (job_id integer)"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of a full SQLite ledger at rest, of epoch 1."""
    directory = tmp_path_factory.mktemp("snapshot", numbered=True)
    url = f"sqlite:///{directory / 'ledger.db'}"
    full_at_rest(url, VirtualClock())
    return taken(url, directory / "full.snapshot", VirtualClock())


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def state_of(url: str) -> Any:
    """Everything that can be seen of a place."""
    if not url.startswith("sqlite"):
        return everything_in(url)
    directory = path_of(url).parent
    of_any_use = tuple(f"ledger.db{suffix}" for suffix in ("-wal", "-shm", "-gate", "-turn"))
    beside = sorted(entry.name for entry in directory.iterdir() if entry.name not in of_any_use)
    return (beside, everything_in(url)) if path_of(url).exists() else beside


def run(url: str, *statements: str) -> None:
    client = Client(url)
    for statement in statements:
        client.run(statement)
    client.commit()
    client.close()


# ---------------------------------------------------------------------------------------------------------------------
# Empty places


@EACH
def test_a_new_place_becomes_a_ledger(kind: str, snapshot: Path, new_url: NewUrl) -> None:
    url = new_url(kind)
    put(snapshot, url)
    open_store(url).close()
    assert diff(str(snapshot), url).tables == {}
    if kind == "sqlite":
        with sqlite3.connect(path_of(url)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.close()
        assert [entry.name for entry in path_of(url).parent.iterdir() if entry.name.startswith(".")] == []


def test_an_empty_file_becomes_a_ledger(snapshot: Path, new_url: NewUrl) -> None:
    url = new_url("sqlite")
    path_of(url).touch()
    put(snapshot, url)
    assert diff(str(snapshot), url).tables == {}


@EACH
def test_an_empty_ledger_becomes_the_one_of_the_snapshot(kind: str, snapshot: Path, new_url: NewUrl) -> None:
    url = new_url(kind)
    with create_store(url) as store:
        with store.transaction() as transaction:
            transaction.operations.declare({"mine": Declared(), "echo": Declared(version="0.0.1")})
            transaction.workers.seen("worker-9", ["default"], ["mine"], 1)
            assert transaction.workers.take_duty("fold", 60)
        made = put(snapshot, url)
        assert (made.epoch, made.rows["jobs"]) == (2, verify(snapshot).trailer.rows["jobs"])
        with store.reading() as reading:
            assert reading.settings.read()["ledger_id"] == verify(snapshot).header.ledger_id
            # A process that has declared an operation keeps it in memory; the ledger has those of the snapshot.
            assert reading.operations.declared().keys() == {"echo", "écho", "mine", "noop"}
            assert reading.operations.declared()["echo"].version == "1.0.0"
            assert [worker.worker_id for worker in reading.lists.workers()] == ["worker-9"]
    compared = diff(str(snapshot), url)
    assert {name: table.keys_only_b for name, table in compared.tables.items()} == {"operations": [("mine",)]}
    assert all(table.total == table.only_b for table in compared.tables.values())


@EACH
def test_a_ledger_whose_queue_was_paused_has_a_history(kind: str, snapshot: Path, new_url: NewUrl) -> None:
    url = new_url(kind)
    with create_store(url) as store, store.transaction() as transaction:
        transaction.queues.pause("mine", actor="a", reason="r")
    with pytest.raises(LedgerNotEmptyError) as refused:
        put(snapshot, url)
    assert refused.value.context == {"tables": ["settings", "journal"]}


@EACH
@pytest.mark.parametrize("made_with", [{"environment": "prod"}, {"governed": True}])
def test_a_ledger_of_another_environment_stays_unchanged(
    kind: str, made_with: dict[str, Any], snapshot: Path, new_url: NewUrl
) -> None:
    url = new_url(kind)
    create_store(url, **made_with).close()
    before = state_of(url)
    with pytest.raises(RefusedError) as caught:
        put(snapshot, url)
    assert caught.value.context["setting"] in made_with
    assert caught.value.exit_code == 3
    assert state_of(url) == before


@EACH
def test_a_submit_during_a_restore_waits(
    kind: str, snapshot: Path, new_url: NewUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.audit.files.snapshot.PROGRESS_ROWS", 1)
    url = new_url(kind)
    greatest = verify(snapshot).given_out["calls"]
    with create_store(url) as store, ThreadPoolExecutor(1) as pool:
        late: list[Future[int]] = []

        def submit() -> int:
            with store.transaction() as transaction:
                [admission] = transaction.jobs.submit([Submission(operation="noop", payload="{}", key="late")])
            return admission.job_id

        def meanwhile(doing: str, *_: object) -> None:
            if doing == "restoring" and not late:
                late.append(pool.submit(submit))

        restore(snapshot, url, RestoreRequest(who="a", why="b"), progress=meanwhile)
        assert late[0].result(30) == greatest + 1
        with store.reading() as reading:
            [row] = reading.journal.of(greatest + 1)
            [[epoch]] = reading.execute(f"SELECT epoch FROM holdfast_journal WHERE seq = {row.seq}")
        assert epoch == 2


# ---------------------------------------------------------------------------------------------------------------------
# Places that are not empty


def _submitted(url: str) -> None:
    with open_store(url) as store, store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}")])


def _maintained(url: str) -> None:
    with open_store(url) as store, store.transaction() as transaction, transaction.maintenance.open(who="a", why="b"):
        pass


def _requested(url: str) -> None:
    with open_store(url) as store, store.transaction() as transaction:
        transaction.grants.request(
            action="release", target="job", scope="{}", actor="a", reason="r", expires_at=VirtualClock().after(60)
        )


def _sealed(url: str) -> None:
    _maintained(url)
    with open_store(url) as store:
        assert len(seal(store)) == 1


@pytest.mark.req("K-63")
@EACH
def test_a_ledger_with_work_or_history_is_refused(kind: str, snapshot: Path, new_url: NewUrl) -> None:
    url = new_url(kind)
    create_store(url).close()
    for what, tables in (
        (_maintained, ["journal"]),
        (_sealed, ["seals", "journal"]),
        (_requested, ["grants", "seals", "journal"]),
        (_submitted, ["jobs", "calls", "grants", "seals", "journal"]),
    ):
        what(url)
        before = state_of(url)
        with pytest.raises(LedgerNotEmptyError) as caught:
            put(snapshot, url)
        assert caught.value.context == {"tables": tables}
        assert caught.value.exit_code == 3
        assert state_of(url) == before


@EACH
def test_a_snapshot_is_restored_once(kind: str, snapshot: Path, new_url: NewUrl) -> None:
    url = new_url(kind)
    put(snapshot, url)
    before = state_of(url)
    with pytest.raises(LedgerNotEmptyError):
        put(snapshot, url)
    assert state_of(url) == before


@EACH
def test_a_ledger_whose_guards_are_off_is_refused(kind: str, snapshot: Path, new_url: NewUrl) -> None:
    url = new_url(kind)
    create_store(url).close()
    table = " ON holdfast_jobs" if kind == "postgres" else ""
    run(url, f"DROP TRIGGER holdfast_jobs_delete{table}")
    before = state_of(url)
    with pytest.raises(EnforcementDriftError):
        put(snapshot, url)
    assert state_of(url) == before


def test_a_file_that_is_no_database_is_refused(snapshot: Path, new_url: NewUrl) -> None:
    url = new_url("sqlite")
    path_of(url).write_text("my diary\n" * 1000)
    with pytest.raises(NotALedgerError):
        put(snapshot, url)
    assert path_of(url).read_text() == "my diary\n" * 1000


def test_a_directory_that_is_not_there_is_refused(snapshot: Path, new_url: NewUrl) -> None:
    url = new_url("sqlite")
    with pytest.raises(StoreUnavailableError):
        put(snapshot, f"sqlite:///{path_of(url).parent / 'no' / 'where.db'}")
    assert state_of(url) == []


# ---------------------------------------------------------------------------------------------------------------------
# Tables beside


@pytest.mark.req("G-28")
@EACH
@pytest.mark.parametrize("ledger", ["no ledger yet", "an empty ledger"])
def test_a_restore_beside_other_tables_is_refused_without_a_flag(
    kind: str, ledger: str, snapshot: Path, new_url: NewUrl
) -> None:
    url = new_url(kind)
    if ledger == "an empty ledger":
        create_store(url).close()
    run(url, EFFECTS, "CREATE TABLE more (n integer)", "INSERT INTO effects (job_id) VALUES (7)")
    before = state_of(url)
    with pytest.raises(EffectsMayBeNewerError) as caught:
        put(snapshot, url)
    prefix = "public." if kind == "postgres" else ""
    assert caught.value.context == {"tables": [f"{prefix}effects", f"{prefix}more"]}
    assert caught.value.exit_code == 3
    assert state_of(url) == before
    put(snapshot, url, tables_from_same_snapshot=True)
    assert diff(str(snapshot), url).tables == {}
    client = Client(url)
    assert client.run("SELECT job_id FROM effects") == [(7,)]
    client.close()


def test_a_refused_file_keeps_its_journal_mode(snapshot: Path, new_url: NewUrl) -> None:
    url = new_url("sqlite")
    run(url, EFFECTS)
    before = path_of(url).read_bytes()
    with pytest.raises(EffectsMayBeNewerError):
        put(snapshot, url)
    assert path_of(url).read_bytes() == before
    assert [entry.name for entry in path_of(url).parent.iterdir()] == ["ledger.db"]


@pytest.mark.pg
def test_effects_may_be_in_another_schema(snapshot: Path, pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection:
        connection.execute("CREATE SCHEMA work")
        connection.execute("CREATE SCHEMA app")
        connection.execute("CREATE TABLE app.effects (n integer)")
    permission = RestoreRequest(who="a", why="b")
    with pytest.raises(EffectsMayBeNewerError) as caught:
        restore(snapshot, pg_url, permission, schema="work")
    assert caught.value.context == {"tables": ["app.effects"]}
    with psycopg.connect(pg_url) as connection:
        connection.execute("DROP TABLE app.effects")
    restore(snapshot, pg_url, permission, schema="work")
    # Another ledger beside it is not a table of effects.
    restore(snapshot, pg_url, permission, schema="app")
    assert diff(str(snapshot), pg_url, schema="work").tables == {}
    assert diff(str(snapshot), pg_url, schema="app").tables == {}
    with pytest.raises(NotALedgerError):
        open_store(pg_url)


@pytest.mark.pg
def test_a_schema_that_is_not_there_is_refused(snapshot: Path, pg_url: str) -> None:
    with pytest.raises(StoreUnavailableError) as caught:
        restore(snapshot, pg_url, RestoreRequest(who="a", why="b"), schema="nowhere")
    assert caught.value.context == {"schema": "nowhere", "sqlstate": "3F000"}


# ---------------------------------------------------------------------------------------------------------------------
# Snapshots that cannot be restored


def _duplicate_key(rows: list[list[Any]]) -> None:
    calls = [row for row in rows if row[0] == "calls" and row[4] is not None]
    calls[1][3:5] = calls[0][3:5]


def _orphan(rows: list[list[Any]]) -> None:
    [row for row in rows if row[0] == "aborted"][-1][1] = 10**9


def _no_call(rows: list[list[Any]]) -> None:
    [row for row in rows if row[0] == "jobs"][-1][1] = 10**9


def _commits_again(rows: list[list[Any]]) -> None:
    """A job that succeeded, with an attempt that could do so a second time."""
    status = 1 + table_named("jobs").names.index("status")
    next(row for row in rows if row[0] == "jobs" and row[status] == "DONE")[status] = "IN_PROGRESS"


def _journal_row_twice(rows: list[list[Any]]) -> None:
    last = [row for row in rows if row[0] == "journal"][-1]
    rows.append([last[0], last[1] + 1, *last[2:]])


@EACH
def test_rows_that_the_database_refuses_leave_nothing_behind(
    kind: str, snapshot: Path, new_url: NewUrl, tmp_path: Path
) -> None:
    url = new_url(kind)
    before = state_of(url)
    for change, table in (
        (_duplicate_key, "calls"),
        (_orphan, "aborted"),
        (_no_call, "jobs"),
        (_commits_again, "jobs"),
        (_journal_row_twice, "journal"),
    ):
        forged = forge(tmp_path / change.__name__, snapshot, change)
        with pytest.raises(SnapshotInvalidError) as caught:
            put(forged, url)
        assert caught.value.context == {"table": table}
        assert state_of(url) == before
    put(snapshot, url)  # then a sound snapshot can be restored
    assert diff(str(snapshot), url).tables == {}


def test_a_value_that_postgresql_cannot_hold_is_reported(
    snapshot: Path, new_url: NewUrl, tmp_path: Path, pg_url: str
) -> None:
    def zero(rows: list[list[Any]]) -> None:
        next(row for row in rows if row[0] == "queues")[4] = "a\0b"

    forged = forge(tmp_path / "forged", snapshot, zero)
    before = state_of(pg_url)
    with pytest.raises(SnapshotInvalidError) as caught:
        put(forged, pg_url)
    assert caught.value.context == {"table": "queues"}
    assert state_of(pg_url) == before
    put(forged, new_url("sqlite"))


@EACH
@pytest.mark.parametrize("place", ["new", "an empty ledger"])
def test_a_snapshot_that_is_not_sound_is_refused_before_anything_is_opened(
    kind: str, place: str, snapshot: Path, new_url: NewUrl, tmp_path: Path
) -> None:
    url = new_url(kind)
    if place != "new":
        create_store(url).close()
    before = state_of(url)
    cut = tmp_path / "cut"
    cut.write_bytes(snapshot.read_bytes()[:-100])

    def tamper(rows: list[list[Any]]) -> None:
        next(row for row in rows if row[0] == "journal")[10] = "somebody else"

    for path, error in (
        (cut, SnapshotInvalidError),
        (tmp_path / "missing", SnapshotInvalidError),
        (pack(tmp_path / "none", []), SnapshotInvalidError),
        (forge(tmp_path / "other", snapshot, lambda rows: None, holdfast_snapshot=1), SnapshotInvalidError),
        (forge(tmp_path / "newer", snapshot, lambda rows: None, schema=99), SnapshotInvalidError),
        (forge(tmp_path / "older", snapshot, lambda rows: None, schema=0), SnapshotInvalidError),
        (forge(tmp_path / "tampered", snapshot, tamper), SealsBrokenError),
    ):
        with pytest.raises(error):
            put(path, url)
        assert state_of(url) == before


def test_a_snapshot_that_changes_while_it_is_restored_is_refused(
    snapshot: Path, new_url: NewUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "moving"
    path.write_bytes(snapshot.read_bytes())
    other = forge(tmp_path / "other", snapshot, lambda rows: None, created_at="2000-01-01T00:00:00.000000Z")
    looked = verify(path)

    def look_then_change(*_: object, **__: object) -> object:
        path.write_bytes(other.read_bytes())
        return looked

    monkeypatch.setattr("holdfast.audit.files.restore.verify", look_then_change)
    url = new_url("sqlite")
    with pytest.raises(SnapshotInvalidError) as caught:
        put(path, url)
    assert caught.value.context == {"kind": "changed"}
    assert state_of(url) == []


# ---------------------------------------------------------------------------------------------------------------------
# Ids and numbers


@EACH
def test_numbers_continue_above_removed_rows(kind: str, new_url: NewUrl, tmp_path: Path) -> None:
    """Ids and numbers that retention has removed are not used again."""
    old, new = new_url(kind), new_url(kind)
    many(old, 10, worked=5)
    with open_store(old) as store, store.transaction() as transaction:
        [attempt] = transaction.executions.claim(Lease(owner="w", seconds=60))
        back = GiveBack(attempt.execution.lease_token, store.now(), "worker_stopped")
        transaction.executions.move([(attempt, back)], actor="w")
        [[last]] = transaction.execute("SELECT max(seq) FROM holdfast_journal")
        with transaction.maintenance.open(who="keeper", why="retention"):
            transaction.execute("DELETE FROM holdfast_aborted")
            transaction.execute("DELETE FROM holdfast_journal WHERE seq > 3")
    snapshot = taken(old, tmp_path / "a")
    given_out = verify(snapshot).given_out
    assert (given_out["calls"], given_out["journal"] > last) == (10, True)
    put(snapshot, new)
    with open_store(new) as store, store.transaction() as transaction:
        [again] = transaction.executions.claim_these([attempt.job.job_id], Lease(owner="w", seconds=60))
        assert again.execution.exec_id == attempt.execution.exec_id + 1
        assert again.execution.lease_token > attempt.execution.lease_token
        [[newest]] = transaction.execute("SELECT max(seq) FROM holdfast_journal")
        assert newest > given_out["journal"]


@pytest.mark.pg
def test_partitions_are_there_for_all_the_numbers(new_url: NewUrl, tmp_path: Path, pg_url: str) -> None:
    old = new_url("sqlite")
    with create_store(old) as store, store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}", key="early")])
        transaction.execute("UPDATE sqlite_sequence SET seq = 31000000 WHERE name = 'holdfast_journal'")
        transaction.jobs.submit([Submission(operation="noop", payload="{}", key="late")])
    put(taken(old, tmp_path / "a"), pg_url)
    assert [row["seq"] for row in rows_of(pg_url)["journal"]] == [1, 31000001]
    with open_store(pg_url) as store:  # opening compares the triggers and indexes of every partition
        assert len(store.upkeep.tables_beside()) == 0
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}", key="new")])
            rows = transaction.execute("SELECT tableoid::regclass::text, seq FROM holdfast_journal ORDER BY seq")
    names, seqs = zip(*rows, strict=True)
    assert names[0] == "holdfast_journal_p0"
    assert len(set(names[1:])) == 1
    assert names[1] != names[0]
    assert seqs[-1] > 31000001
    back = new_url("sqlite")
    put(taken(pg_url, tmp_path / "b"), back)
    assert diff(pg_url, back).tables == {}


# ---------------------------------------------------------------------------------------------------------------------
# Comparing


@EACH
def test_every_kind_of_difference_is_reported(kind: str, snapshot: Path, new_url: NewUrl, tmp_path: Path) -> None:
    url = new_url(kind)
    put(snapshot, url)

    def change(rows: list[list[Any]]) -> None:
        for table in TABLES:
            mine = [row for row in rows if row[0] == table.name]
            if table.name not in ("meta", "seals", "archives", "journal", "jobs") and len(mine) > 1:
                mine[0][-1] = "2001-01-01T00:00:00.000000Z" if table.columns[-1].kind == "time" else mine[0][-1]
        rows.remove([row for row in rows if row[0] == "jobs"][-1])
        rows.insert(0, ["meta", "a new one", "x"])
        next(row for row in rows if row[:2] == ["meta", "environment"])[2] = "stage"
        next(row for row in rows if row[0] == "checkpoints")[3] = "0"

    compared = diff(str(forge(tmp_path / "forged", snapshot, change)), url)
    found = {name: (t.only_a, t.only_b, t.changed) for name, t in compared.tables.items()}
    assert found == {
        "meta": (1, 0, 1),
        "operations": (0, 0, 1),
        "collections": (0, 0, 1),
        "evidence": (0, 0, 1),
        "calls": (0, 0, 1),
        "jobs": (0, 1, 0),
        "checkpoints": (0, 0, 1),
    }
    assert compared.tables["meta"].keys_only_a == [("a new one",)]
    assert compared.tables["meta"].keys_changed == [("environment",)]
    assert not compared.same


def test_the_keys_that_are_shown_are_few(new_url: NewUrl) -> None:
    one, other = new_url("sqlite"), new_url("sqlite")
    many(one, 50, worked=0)
    create_store(other).close()
    jobs = diff(one, other).tables["jobs"]
    assert (jobs.only_a, jobs.keys_only_a) == (50, [(n,) for n in range(1, 21)])


@pytest.mark.parametrize("place", ["missing.snapshot", "sqlite:///missing.db", "mysql://x/y", ""])
def test_a_comparison_of_unsuitable_files_is_refused(place: str, snapshot: Path) -> None:
    with pytest.raises(HoldfastError):
        diff(str(snapshot), place)


def test_a_cut_snapshot_is_not_compared(snapshot: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(snapshot.read_bytes()[:-20])
    with pytest.raises(SnapshotInvalidError):
        diff(str(snapshot), str(cut))
    with pytest.raises(InputError):
        diff(str(tmp_path), str(snapshot))


def test_comparing_leaves_nothing_beside_the_ledger(new_url: NewUrl) -> None:
    url = new_url("sqlite")
    many(url, 10, worked=10)
    with connect(url) as store:
        before = state_of(url)
        assert diff(url, url).same
        assert state_of(url) == before
        assert store.upkeep.tables_beside() == []
