"""What guards history from any client: seals and archives stay, a slimmed job rests, no move is told twice."""

from __future__ import annotations

from holdfast.core.machines import JOB, JobState
from holdfast.store import connect, create_store, open_store
from holdfast.store.enforcement import GUARDED, Refusal
from holdfast.store.migrations import RECORD, migrate, migrations
from tests.enforcement.raw import AT, Client, Hand
from tests.enforcement.test_door import opened

SEAL = (
    "INSERT INTO holdfast_seals (seal_id, epoch, last_xid, last_seq, low_seq, high_seq, rows, digest, previous, hash,"
    f" sealed_at, horizon_xid, horizon_seq) VALUES (?, 1, 0, ?, 1, 1, 1, 'd', ?, ?, '{AT}', 0, 0)"
)
ARCHIVE = (
    "INSERT INTO holdfast_archives (archive_id, first_seal, last_seal, file, sha256, rows, executions, created_at)"
    f" VALUES (1, 1, 1, 'journal-1-1.jsonl.gz', 'f', 1, 0, '{AT}')"
)


# -- seals and archives -----------------------------------------------------------------------------------------------


def test_a_seal_follows_the_last_one_and_stays(client: Client) -> None:
    client.run(SEAL, 1, 1, "genesis", "one")
    assert client.refusal(SEAL, 3, 3, "one", "three") == Refusal.WRITTEN_BY_HAND
    assert client.refusal(SEAL, 2, 2, "other", "two") == Refusal.WRITTEN_BY_HAND
    assert client.refusal(SEAL, 1, 1, "genesis", "again") == Refusal.WRITTEN_BY_HAND
    client.run(SEAL, 2, 2, "one", "two")
    client.run(ARCHIVE)
    opened(client)  # not even maintenance may do it
    for table in ("holdfast_seals", "holdfast_archives"):
        assert client.refusal(f"UPDATE {table} SET rows = 2") == Refusal.APPEND_ONLY
        assert client.refusal(f"DELETE FROM {table}") == Refusal.APPEND_ONLY
    assert client.run("SELECT seal_id, hash, rows FROM holdfast_seals ORDER BY seal_id") == [
        (1, "one", 1),
        (2, "two", 1),
    ]


def test_seals_and_archives_are_not_truncated(postgres_client: Client) -> None:
    for table in ("holdfast_seals", "holdfast_archives"):
        assert postgres_client.refusal(f"TRUNCATE {table} CASCADE") == Refusal.NEVER_DELETED


def test_insert_or_replace_cannot_replace_a_seal(sqlite_client: Client) -> None:
    sqlite_client.run(SEAL, 1, 1, "genesis", "one")
    replace = SEAL.replace("INSERT", "INSERT OR REPLACE", 1)
    assert sqlite_client.refusal(replace, 1, 1, "genesis", "other") == Refusal.WRITTEN_BY_HAND
    sqlite_client.run(ARCHIVE)
    assert sqlite_client.refusal(ARCHIVE.replace("INSERT", "INSERT OR REPLACE", 1)) == Refusal.WRITTEN_BY_HAND


# -- what rests -------------------------------------------------------------------------------------------------------


def test_the_result_of_a_job_that_has_ended_is_kept(client: Client, hand: Hand) -> None:
    ended, running = hand.put(JOB, JobState.SUCCEEDED), hand.put(JOB, JobState.RUNNING)
    update = "UPDATE holdfast_jobs SET result = '1' WHERE job_id = ?"
    assert client.refusal(update, ended) == Refusal.WRITE_ONCE
    assert client.refusal(update, running) is None
    opened(client)
    assert client.refusal(update, ended) is None


def test_a_slimmed_job_is_never_released_not_even_with_a_grant(client: Client, hand: Hand) -> None:
    job, other = hand.put(JOB, JobState.QUARANTINED), hand.put(JOB, JobState.QUARANTINED)
    door = opened(client)
    client.run("UPDATE holdfast_jobs SET payload = NULL, result = NULL WHERE job_id = ?", job)
    client.run("DELETE FROM holdfast_maintenance WHERE maintenance_id = ?", door)
    release = JOB.path("release", JobState.QUARANTINED)
    for subject, refused in ((job, Refusal.SLIMMED), (other, None)):
        move_id = hand.unique("release")
        grant = hand.consumed_grant(move_id)
        move = hand.move(JOB, subject, release.event, release.target, 1, move_id=move_id, grant_id=grant)
        assert client.refusal(*move) == refused


# -- no move is told twice --------------------------------------------------------------------------------------------


COPY = (
    "INSERT INTO holdfast_journal (epoch, xid, machine, subject, version, source, target, event, actor, reason,"
    " attempt, move_id, grant_id, maintenance_id, at) SELECT epoch, xid, machine, subject, version, source, target,"
    " event, 'somebody else', reason, attempt, move_id, grant_id, maintenance_id, at FROM holdfast_journal"
    " WHERE machine = 'JOB' AND subject = {job} AND version = {version}"
)


def test_a_row_that_was_archived_cannot_be_written_again(client: Client, hand: Hand) -> None:
    """Its version is its record's, and its move_id too; but the record says that its history begins later."""
    job = hand.born(JOB)
    text = COPY.format(job=job, version=1).partition(" SELECT ")
    [row] = client.run(text[2].join(("SELECT ", "")))
    door = opened(client)
    client.run("DELETE FROM holdfast_journal WHERE machine = 'JOB' AND subject = ?", job)
    client.run("UPDATE holdfast_jobs SET history_from = 2 WHERE job_id = ?", job)
    client.run("DELETE FROM holdfast_maintenance WHERE maintenance_id = ?", door)
    marks = ", ".join("?" for _ in row)
    assert client.refusal(f"{text[0]} VALUES ({marks})", *row) == Refusal.WRITTEN_BY_HAND


def test_a_move_is_not_told_again_beyond_the_edge_of_a_partition(pg_url: str) -> None:
    """Unique indexes of partitions do not see each other: the record itself tells that its move is over."""
    create_store(pg_url).close()
    committing = Client(pg_url)
    hand = Hand(committing)
    job = hand.put(JOB, JobState.RUNNING)
    committing.run("SELECT setval('holdfast_journal_seq', 15000000)")
    committing.commit()
    with connect(committing.url) as store, store.transaction() as transaction:
        assert store.extend_journal(transaction._connection) == "holdfast_journal_p1"
    committing.begin()
    committing.run("SELECT setval('holdfast_journal_seq', 20000000)")
    committing.run("CREATE TEMP TABLE mine (n integer)")
    forged = f"DECLARE n integer; BEGIN {COPY.format(job=job, version=2)}; RETURN NULL; END"
    committing.run(f"CREATE FUNCTION pg_temp.forge() RETURNS trigger LANGUAGE plpgsql AS $$ {forged} $$")
    committing.run("CREATE TRIGGER forge AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION pg_temp.forge()")
    assert committing.refusal("INSERT INTO mine VALUES (1)") == Refusal.WRITTEN_BY_HAND
    # In the next partition the genuine ones still go, through a savepoint too, and are guarded as in the first.
    other = hand.put(JOB, JobState.RUNNING)
    with committing.savepoint():
        hand.take(JOB, other, JOB.path("succeed", JobState.RUNNING))
    rows = committing.run("SELECT version, target FROM holdfast_journal_p1 WHERE subject = ? ORDER BY version", other)
    assert rows == [(1, "pending"), (2, "running"), (3, "succeeded")]
    direct = COPY.format(job=other, version=3).replace("holdfast_journal", "holdfast_journal_p1", 1)
    assert committing.refusal(direct) == Refusal.WRITTEN_BY_HAND
    assert committing.refusal("TRUNCATE holdfast_journal_p1") == Refusal.NEVER_DELETED
    committing.rollback()
    committing.close()
    open_store(pg_url).close()


# -- from the first schema --------------------------------------------------------------------------------------------


def test_a_ledger_of_the_first_schema_is_brought_to_this_one(ledger_url: str) -> None:
    first = migrations("postgres" if ledger_url.startswith("postgres") else "sqlite")[0]
    with connect(ledger_url, create=True) as store, store.transaction() as transaction:
        for statement in (RECORD, *first.statements()):
            transaction.execute(statement)
        row = f"({first.number}, '{first.name}', '{first.digest}', '{AT}')"
        transaction.execute(f"INSERT INTO holdfast_migrations VALUES {row}")
        transaction.set_meta("epoch", "1")
    with connect(ledger_url) as store:
        assert migrate(store) == tuple(migration.name for migration in migrations(store.dialect)[1:])
    with open_store(ledger_url) as store, store.reading() as reading:
        assert len(reading.meta()["ledger_id"]) == 32
        for guarded in GUARDED:
            assert reading.execute(f"SELECT count(history_from) FROM {guarded.table}") == [(0,)]


def test_every_ledger_has_an_id_of_its_own(sqlite_url: str) -> None:
    ids = set()
    for name in ("a", "b"):
        with create_store(f"{sqlite_url}.{name}") as store, store.reading() as reading:
            ids.add(reading.meta()["ledger_id"])
    assert len(ids) == 2
