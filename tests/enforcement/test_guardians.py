"""History is guarded from any client: kept rows stay, a slimmed job does not move, no move is journalled twice."""

from __future__ import annotations

import pytest

from holdfast.audit.check.runner import check
from holdfast.core.decide import Move
from holdfast.core.governed import Evidence
from holdfast.core.machines import GRANT, JOB, PROCEDURE, ExecutionStatus, GrantState, JobState
from holdfast.store import connect, create_store, open_store, tables
from holdfast.store.enforcement import Refusal
from holdfast.store.migrations import RECORD, migrate, migrations
from holdfast.store.tables import GUARDED
from tests.enforcement.raw import AT, LATER, Client, Hand
from tests.enforcement.test_door import opened
from tests.enforcement.test_refusals import untouched

pytestmark = pytest.mark.attack("sql")

SEAL = (
    "INSERT INTO holdfast_seals (seal_id, format, epoch, last_xid, last_seq, low_seq, high_seq, rows, digest, previous,"
    f" hash, sealed_at, horizon_xid, horizon_seq) VALUES (?, 2, 1, 0, ?, 1, 1, 1, 'd', ?, ?, '{AT}', 0, 0)"
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


def test_no_table_of_history_is_truncated(postgres_client: Client) -> None:
    for table in ("holdfast_seals", "holdfast_archives", "holdfast_evidence", "holdfast_leases"):
        assert postgres_client.refusal(f"TRUNCATE {table} CASCADE") == Refusal.NEVER_DELETED


def test_insert_or_replace_cannot_replace_a_seal(sqlite_client: Client) -> None:
    sqlite_client.run(SEAL, 1, 1, "genesis", "one")
    replace = SEAL.replace("INSERT", "INSERT OR REPLACE", 1)
    assert sqlite_client.refusal(replace, 1, 1, "genesis", "other") == Refusal.WRITTEN_BY_HAND
    sqlite_client.run(ARCHIVE)
    assert sqlite_client.refusal(ARCHIVE.replace("INSERT", "INSERT OR REPLACE", 1)) == Refusal.WRITTEN_BY_HAND


# -- evidence and leases ----------------------------------------------------------------------------------------------

EVIDENCE = (
    "INSERT INTO holdfast_evidence (run_id, kind, subject, content, digest, actor, created_at)"
    f" VALUES (?, ?, 'registry', 'what was seen', 'd', 'raw', '{AT}') RETURNING evidence_id"
)
CHANGES = {
    "evidence_id": 777, "run_id": None, "kind": "other", "subject": "other", "content": "other", "digest": "other",
    "actor": "other", "grant_id": None, "created_at": LATER,
}  # fmt: skip


def test_a_piece_of_evidence_is_declared_void_once_and_stays(client: Client, hand: Hand) -> None:
    run, grant = hand.born(PROCEDURE), hand.put(GRANT, GrantState.ACTIVE)
    [[evidence]] = client.run(EVIDENCE, run, "digest")
    opened(client)  # not even maintenance may do it
    update = "UPDATE holdfast_evidence SET {} = ? WHERE evidence_id = ?"
    changes = {**CHANGES, "grant_id": grant}
    with untouched(client, "holdfast_evidence"):
        for column, other in changes.items():
            assert client.refusal(update.format(column), other, evidence) == Refusal.APPEND_ONLY, column
        void = "UPDATE holdfast_evidence SET voided_at = ?, content = 'other' WHERE evidence_id = ?"
        assert client.refusal(void, AT, evidence) == Refusal.APPEND_ONLY
        assert client.refusal("DELETE FROM holdfast_evidence") == Refusal.APPEND_ONLY
    assert client.refusal(update.format("voided_at"), AT, evidence) is None
    with untouched(client, "holdfast_evidence"):
        for again in (AT, LATER, None):
            assert client.refusal(update.format("voided_at"), again, evidence) == Refusal.APPEND_ONLY
        assert client.refusal("DELETE FROM holdfast_evidence") == Refusal.APPEND_ONLY
    # A void piece of evidence stays, and another of its kind can be written.
    client.run(EVIDENCE, run, "digest")
    assert client.count("holdfast_evidence") == 2


def test_all_columns_of_evidence_were_tried(client: Client) -> None:
    names = set(Evidence.__struct_fields__)
    assert names - {"voided_at"} == set(CHANGES) == set(tables.EVIDENCE)
    client.run(EVIDENCE, None, "digest")
    [row] = client.run("SELECT * FROM holdfast_evidence")
    assert len(row) == len(names)


def test_a_run_has_one_piece_of_evidence_of_a_kind(client: Client, hand: Hand) -> None:
    run = hand.born(PROCEDURE)
    [[evidence]] = client.run(EVIDENCE, run, "digest")
    verbs = ["INSERT"]
    if client.dialect == "sqlite":
        verbs += ["INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE"]
    by_id = EVIDENCE.replace("(run_id", "(evidence_id, run_id").replace("VALUES (", f"VALUES ({evidence}, ")
    expected = Refusal.APPEND_ONLY if client.dialect == "sqlite" else "23505"
    with untouched(client, "holdfast_evidence"):
        for verb in verbs:
            assert client.refusal(EVIDENCE.replace("INSERT", verb, 1), run, "digest") == expected, verb
            assert client.refusal(by_id.replace("INSERT", verb, 1), run, "another") == expected, verb
    client.run(EVIDENCE, run, "another")
    client.run(EVIDENCE, hand.born(PROCEDURE), "digest")
    for _ in range(2):
        client.run(EVIDENCE, None, "digest")  # without a run there may be many


LEASE = (
    "INSERT INTO holdfast_leases (name, holder, token, acquired_at, expires_at)"
    f" VALUES ('build', ?, ?, '{AT}', '{LATER}')"
)


def test_the_token_of_a_lease_only_grows(client: Client) -> None:
    client.run(LEASE, "ann", 3)
    update = "UPDATE holdfast_leases SET holder = ?, token = ?, expires_at = ? WHERE name = 'build'"
    with untouched(client, "holdfast_leases"):
        for holder, token in (("ann", 2), ("bob", 2), ("bob", 3)):
            assert client.refusal(update, holder, token, LATER) == Refusal.NOT_MONOTONE, (holder, token)
        assert client.refusal("UPDATE holdfast_leases SET name = 'other'") == Refusal.NOT_MONOTONE
        assert client.refusal("DELETE FROM holdfast_leases") == Refusal.NEVER_DELETED
        if client.dialect == "sqlite":
            for token in (1, 3):
                assert client.refusal(LEASE.replace("INSERT", "REPLACE"), "bob", token) == Refusal.NOT_MONOTONE
    for holder, token in (("ann", 3), ("ann", 4), ("bob", 5)):
        assert client.refusal(update, holder, token, AT) is None
    assert client.run("SELECT holder, token FROM holdfast_leases") == [("bob", 5)]


# -- what rests -------------------------------------------------------------------------------------------------------


def test_a_result_is_written_once_at_the_commit_boundary(client: Client, hand: Hand) -> None:
    """It comes with the commit or the success, never before, never with a failure, and is then kept."""
    update = "UPDATE holdfast_jobs SET result = '1' WHERE job_id = ?"
    ended, running = hand.put(JOB, JobState.SUCCEEDED), hand.put(JOB, JobState.RUNNING)
    committed, leased = hand.attempt(ExecutionStatus.COMMITTED), hand.attempt(ExecutionStatus.LEASED)
    with untouched(client, "holdfast_jobs"):
        for job in (ended, running, committed):
            assert client.refusal(update, job) == Refusal.WRITE_ONCE
        for event, target, edges in (("fail", "failed", 1), ("retry", "pending", 2), ("quarantine", "quarantined", 2)):
            assert client.refusal(*hand.move(JOB, running, event, target, edges, result="1")) == Refusal.WRITE_ONCE
        assert client.refusal(*hand.step(leased, "start", "IN_PROGRESS", result="1")) == Refusal.WRITE_ONCE
    hand.take(JOB, running, JOB.path("succeed", JobState.RUNNING), result="1")
    hand.take(JOB, committed, JOB.path("succeed", JobState.RUNNING), result="2")
    early = hand.put(JOB, JobState.RUNNING)
    assert client.refusal(*hand.step(early, "commit", "COMMITTED", result="3")) is None
    late = hand.move(JOB, early, "succeed", "succeeded", 1, result="4")
    assert client.refusal(*late) == Refusal.WRITE_ONCE
    hand.take(JOB, early, JOB.path("succeed", JobState.RUNNING))
    results = "SELECT result FROM holdfast_jobs WHERE result IS NOT NULL ORDER BY result"
    assert client.run(results) == [("1",), ("2",), ("3",)]
    opened(client)
    assert client.refusal(update, ended) is None


def test_a_slimmed_job_is_never_released_not_even_with_a_grant(client: Client, hand: Hand) -> None:
    job, other = hand.put(JOB, JobState.QUARANTINED), hand.put(JOB, JobState.QUARANTINED)
    door = opened(client)
    client.run("UPDATE holdfast_calls SET payload = NULL WHERE job_id = ?", job)
    client.run("UPDATE holdfast_jobs SET result = NULL WHERE job_id = ?", job)
    client.run("DELETE FROM holdfast_maintenance WHERE maintenance_id = ?", door)
    release = JOB.path("release", JobState.QUARANTINED)
    for subject, refused in ((job, Refusal.SLIMMED), (other, None)):
        move_id = hand.unique("release")
        grant = hand.consumed_grant(move_id)
        move = hand.move(JOB, subject, release.event, release.target, 1, move_id=move_id, grant_id=grant)
        assert client.refusal(*move) == refused


# -- no move is journalled twice ---------------------------------------------------------------------------------------


COPY = (
    "INSERT INTO holdfast_journal (epoch, xid, machine, subject, version, source, target, event, actor, reason,"
    " attempt, move_id, grant_id, maintenance_id, at) SELECT epoch, xid, machine, subject, version, source, target,"
    " event, 'somebody else', reason, attempt, move_id, grant_id, maintenance_id, at FROM holdfast_journal"
    " WHERE machine = 'JOB' AND subject = {job} AND version = {version}"
)


def test_a_row_that_was_archived_cannot_be_written_again(client: Client, hand: Hand) -> None:
    """Its version and move_id fit the record, but the record says that its history begins later."""
    job = hand.born(JOB)
    text = COPY.format(job=job, version=1).partition(" SELECT ")
    [row] = client.run(text[2].join(("SELECT ", "")))
    door = opened(client)
    client.run("DELETE FROM holdfast_journal WHERE machine = 'JOB' AND subject = ?", job)
    client.run("UPDATE holdfast_jobs SET history_from = 2 WHERE job_id = ?", job)
    client.run("DELETE FROM holdfast_maintenance WHERE maintenance_id = ?", door)
    marks = ", ".join("?" for _ in row)
    assert client.refusal(f"{text[0]} VALUES ({marks})", *row) == Refusal.WRITTEN_BY_HAND


def test_a_move_is_not_journalled_twice_across_partitions(new_postgres_ledger: str) -> None:
    """Unique indexes of partitions do not see each other: the record itself shows that the move is done."""
    committing = Client(new_postgres_ledger)
    hand = Hand(committing)
    job = hand.put(JOB, JobState.RUNNING)
    committing.run("SELECT setval('holdfast_journal_seq', 15000000)")
    committing.commit()
    with connect(committing.url) as store, store.transaction() as transaction:
        assert store.upkeep.extend_journal(transaction.connection) == "holdfast_journal_p1"
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
    assert committing.refusal(direct) == "23505"  # the unique index of the partition speaks first
    later = direct.replace("SELECT epoch, xid, machine, subject, version", "SELECT epoch, xid, machine, subject, 9")
    assert committing.refusal(later) == Refusal.WRITTEN_BY_HAND
    assert committing.refusal("TRUNCATE holdfast_journal_p1") == Refusal.NEVER_DELETED
    committing.rollback()
    committing.close()
    open_store(new_postgres_ledger).close()


def test_a_move_journalled_twice_in_two_partitions_is_found_by_check(new_postgres_ledger: str) -> None:
    """No unique index or look-up can refuse this: the move is the last one, and the other row is elsewhere."""
    committing = Client(new_postgres_ledger)
    committing.run("SELECT setval('holdfast_journal_seq', 15000000)")
    committing.commit()
    with connect(committing.url) as store, store.transaction() as transaction:
        assert store.upkeep.extend_journal(transaction.connection) == "holdfast_journal_p1"
    committing.begin()
    job = Hand(committing).put(JOB, JobState.RUNNING)
    again = COPY.format(job=job, version=2).replace("(epoch", "(seq, epoch", 1)
    again = again.replace("SELECT epoch", "SELECT 20000005, epoch", 1)
    committing.run("CREATE TEMP TABLE mine (n integer)")
    forged = f"BEGIN {again}; RETURN NULL; END"
    committing.run(f"CREATE FUNCTION pg_temp.forge() RETURNS trigger LANGUAGE plpgsql AS $$ {forged} $$")
    committing.run("CREATE TRIGGER forge AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION pg_temp.forge()")
    committing.run("INSERT INTO mine VALUES (1)")
    committing.commit()
    committing.close()
    with open_store(new_postgres_ledger) as store:
        found = [(finding.invariant, finding.subject) for finding in check(store).violations]
    assert ("journal_continuous", f"JOB {job}") in found


# -- from the first schema --------------------------------------------------------------------------------------------


def make_old(url: str, schemas: int, *rows: str) -> None:
    """Make a ledger of the first schemas, with rows of then."""
    with connect(url, create=True) as store, store.transaction() as transaction:
        transaction.execute(RECORD)
        for migration in migrations(store.dialect)[:schemas]:
            for statement in migration.statements():
                transaction.execute(statement)
            row = f"({migration.number}, '{migration.name}', '{migration.digest}', '{AT}')"
            transaction.execute(f"INSERT INTO holdfast_migrations VALUES {row}")
        for name, value in (("epoch", "1"), ("environment", "dev"), ("governed", "no")):
            transaction.settings.set(name, value)
        for statement in rows:
            transaction.execute(statement)


def test_a_ledger_of_the_first_schema_is_upgraded(empty_url: str) -> None:
    make_old(empty_url, 1)
    with connect(empty_url) as store:
        assert migrate(store) == tuple(migration.name for migration in migrations(store.dialect)[1:])
    with open_store(empty_url) as store, store.reading() as reading:
        assert len(reading.settings.read()["ledger_id"]) == 32
        for guarded in GUARDED:
            assert reading.execute(f"SELECT count(history_from) FROM {guarded.table}") == [(0,)]


SIGNED = f"'{AT}', '{AT}', 'ann', 'why'"
JOURNAL_INSERT = (
    "INSERT INTO holdfast_journal (epoch, xid, machine, subject, version, source, target, event, actor, reason,"
    " move_id, grant_id, at) VALUES (1, 0, '{}', 1, {}, {}, '{}', '{}', 'ann', 'why', '{}', {}, '" + AT + "')"
)


def test_rows_from_before_the_triggers_are_kept_by_the_upgrade(empty_url: str) -> None:
    make_old(
        empty_url,
        1,
        "INSERT INTO holdfast_grants (state, version, action, target, scope, requested_by, approved_by, consumed_by,"
        " expires_at, created_at, updated_at, actor, reason, event, move_id) VALUES ('consumed', 3, 'release', 'job 1',"
        f" 'one', 'ann', 'bob', 'ann', '{LATER}', {SIGNED}, 'consume', 'g3')",
        JOURNAL_INSERT.format("GRANT", 1, "NULL", "draft", "request", "g1", 1),
        JOURNAL_INSERT.format("GRANT", 2, "'draft'", "active", "approve", "g2", 1),
        JOURNAL_INSERT.format("GRANT", 3, "'active'", "consumed", "consume", "g3", 1),
        "INSERT INTO holdfast_procedures (idempotency_root, procedure, state, version, step, created_at, updated_at,"
        f" actor, reason, event, move_id) VALUES ('root', 'build', 'planned', 1, 0, {SIGNED}, 'plan', 'p1')",
        JOURNAL_INSERT.format("PROCEDURE", 1, "NULL", "planned", "plan", "p1", "NULL"),
    )
    with connect(empty_url) as store:
        assert migrate(store) == tuple(migration.name for migration in migrations(store.dialect)[1:])
    with open_store(empty_url) as store:
        assert check(store).violations == ()
        with store.transaction() as transaction:
            grant, run = transaction.grants.get(1), transaction.runs.get("root")
            assert grant is not None
            assert run is not None
            assert (grant.state, grant.consumed_by, grant.requested_via, grant.approved_via) == (
                "consumed",
                "ann",
                None,
                None,
            )
            assert (run.params, run.plan, run.lease, run.grant_id, run.failure) == ("{}", "", "", None, None)
            assert isinstance(transaction.runs.move(run, "run", actor="ann"), Move)
        assert check(store).violations == ()


def test_every_ledger_has_an_id_of_its_own(sqlite_url: str) -> None:
    ids = set()
    for name in ("a", "b"):
        with create_store(f"{sqlite_url}.{name}") as store, store.reading() as reading:
            ids.add(reading.settings.read()["ledger_id"])
    assert len(ids) == 2
