"""The illegal acts that the layout of the lean ledger was designed against, by plain SQL on both databases.

Invariants: each act is tried on a ledger with jobs that wait, run and were leased; one that is refused leaves every row
of the jobs, calls, ended attempts and the journal as it was; the code says why.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import RefusedByDatabaseError
from holdfast.core.machines import JOB, ExecutionStatus, JobState
from holdfast.store import Lease, Submission, create_store
from holdfast.store.enforcement import Refusal
from tests.enforcement.raw import AT, LATER, Client, Hand
from tests.enforcement.test_refusals import untouched

pytestmark = pytest.mark.attack("sql")

EDGE, BIRTH, KEPT, ONCE, BY_HAND = (
    Refusal.ILLEGAL_EDGE, Refusal.ILLEGAL_BIRTH, Refusal.APPEND_ONLY, Refusal.WRITE_ONCE, Refusal.WRITTEN_BY_HAND,
)  # fmt: skip
FEWER, UNSIGNED, GRANT, DELETED = (
    Refusal.NOT_MONOTONE, Refusal.UNSIGNED, Refusal.GRANT_REQUIRED, Refusal.NEVER_DELETED,
)  # fmt: skip
UNIQUE, CHECK = "23505", {"23514", "SQLITE_CONSTRAINT_CHECK"}
VIEW = {"55000", "SQLITE_ERROR"}  # object_not_in_prerequisite_state: a view cannot be written
TABLES = ("holdfast_jobs", "holdfast_calls", "holdfast_aborted", "holdfast_count_deltas")

SIGNED = f"move_id = 'act', updated_at = '{LATER}'"
OPEN = f"lease_expires_at = '{LATER}', last_attempt_at = '{AT}', due_at = NULL"
DONE = (
    f"state = 'succeeded', status = 'DONE', lease_expires_at = NULL, version = version + 1, event = 'succeed', {SIGNED}"
)
RETRIED = (
    "state = 'pending', status = NULL, lease_expires_at = NULL, due_at = run_at, version = version + 2,"
    f" event = 'retry', {SIGNED}"
)
CLAIMED = (
    f"state = 'running', status = 'IN_PROGRESS', lease_owner = 'x', version = version + 1, event = 'claim', {OPEN}"
)
REQUESTED = f"cancel_requested_at = '{AT}', cancel_by = 'ann', cancel_reason = 'why', cancel_move_id = 'request'"
SHUT_AWAY = (
    "state = 'quarantined', resting = 'quarantined', due_at = NULL, version = version + 1, event = 'quarantine',"
    f" {SIGNED}"
)
JOB_COLUMNS = "job_id, version, run_at, updated_at, move_id, operation, queue, event, actor, state, due_at, resting"
CALL_COLUMNS = "max_attempts, replay_attempts, created_at, operation_version, client, digest"
CALL = f"INSERT INTO holdfast_calls (job_id, {CALL_COLUMNS}) VALUES (7000, 1, 1, '{AT}', '1', 'c', 'd')"
JOURNAL = (
    "INSERT INTO {table} (epoch, xid, move_id, subject, version, attempt, machine, target, event, actor, at)"
    f" VALUES (1, 0, 'x', {{waiting}}, 2, 0, 'JOB', 'running', 'claim', 'x', '{AT}')"
)
ENDED = (
    "INSERT INTO holdfast_aborted (job_id, attempt, version, excused, lease_owner, lease_token, lease_expires_at,"
    f" created_at, finished_at, event, actor, move_id) VALUES ({{job}}, 1, 3, {{no}}, 'raw', 1, '{LATER}', '{AT}',"
    f" '{AT}', 'fail', 'x', {{move}})"
)
RUNNING, LEASED, WAITING = " WHERE job_id = {running}", " WHERE job_id = {leased}", " WHERE job_id = {waiting}"


def jobs(sets: str, where: str = RUNNING) -> str:
    return f"UPDATE holdfast_jobs SET {sets}{where}"


def a_job(job: str, state: str = "pending", verb: str = "INSERT", more: tuple[str, str] = ("", "")) -> str:
    due, resting = (f"'{AT}'", "NULL") if state == "pending" else ("NULL", f"'{state}'")
    values = f"{job}, 1, '{AT}', '{AT}', 'm', 'o', 'q', 'submit', 'a', '{state}', {due}, {resting}"
    return f"{verb} INTO holdfast_jobs ({JOB_COLUMNS}{more[0]}) VALUES ({values}{more[1]})"


def ended(job: str, move: str = "x") -> str:
    return ENDED.format(job=job, move=f"'{move}'", no="{no}")


def journal(table: str = "holdfast_journal") -> str:
    return JOURNAL.replace("{table}", table)


TWO_ROWS = (
    "state = CASE WHEN job_id = {running} THEN 'succeeded' ELSE 'failed' END,"
    " resting = CASE WHEN job_id = {running} THEN NULL ELSE 'failed' END,"
    " status = CASE WHEN job_id = {running} THEN 'DONE' END, lease_expires_at = NULL, version = version + 1,"
    f" event = 'succeed', {SIGNED}"
)
FAILED = SHUT_AWAY.replace("event = 'quarantine'", "event = 'fail'")
MERGED = RETRIED.replace("'retry'", "'claim'").replace("= version", "= t.version")
MERGE = "MERGE INTO holdfast_jobs t USING (SELECT {running} AS i) s ON t.job_id = s.i WHEN MATCHED THEN UPDATE SET"
FORGE = "CREATE FUNCTION pg_temp.forge() RETURNS trigger LANGUAGE plpgsql AS"
SAME_KEY = f"INTO holdfast_calls ({CALL_COLUMNS}, key) SELECT {CALL_COLUMNS}, key FROM holdfast_calls{RUNNING}"
ANOTHERS_KEY = "key = (SELECT key FROM holdfast_calls WHERE job_id = {other})"
Act = tuple[list[str], Any]  # the last statement is refused, those before it are legal; then the code, or several
BOTH: dict[str, Act] = {
    "unlisted edge": ([jobs(RETRIED.replace("'retry'", "'claim'"))], EDGE),
    "listed edge, wrong event": ([jobs(DONE.replace("'succeed'", "'submit'"))], EDGE),
    "wrong version": ([jobs(DONE.replace("+ 1", "+ 2"))], EDGE),
    "unsigned": ([jobs(DONE.replace("move_id = 'act', ", ""))], UNSIGNED),
    "dated before the last": ([jobs(DONE.replace(LATER, "2029-01-02T03:04:05.000006Z"))], UNSIGNED),
    "job done, attempt not": ([jobs(DONE.replace("'DONE'", "'IN_PROGRESS'"))], EDGE),
    "attempt done, job not": ([jobs(f"status = 'DONE', event = 'finish', {SIGNED}")], EDGE),
    "attempt ended, job not": ([jobs(f"status = NULL, event = 'abort', {SIGNED}")], EDGE),
    "LEASED straight to DONE": ([jobs(DONE, LEASED)], EDGE),
    "LEASED straight to COMMITTED": ([jobs(f"status = 'COMMITTED', event = 'commit', {SIGNED}", LEASED)], EDGE),
    "back from IN_PROGRESS to LEASED": ([jobs(f"status = 'LEASED', event = 'start', {SIGNED}")], EDGE),
    "start counted as a version": (
        [jobs(f"status = 'IN_PROGRESS', version = version + 1, event = 'start', {SIGNED}", LEASED)], EDGE,
    ),
    "lease kept by one that succeeds": ([jobs(DONE.replace("lease_expires_at = NULL, ", ""))], EDGE),
    "owner changed at the end": ([jobs(f"{DONE}, lease_owner = 'thief'")], EDGE),
    "owner changed on the way": ([jobs("lease_owner = 'thief'")], ONCE),
    "token changed on the way": ([jobs("lease_token = lease_token + 1")], ONCE),
    "token changed at the end": ([jobs(f"{DONE}, lease_token = lease_token + 1")], EDGE),
    "lease dropped without an end": ([jobs("lease_expires_at = NULL")], EDGE),
    "claim with an older token": (
        [jobs(f"{RETRIED}, lease_token = lease_token"),
         jobs(f"{CLAIMED}, attempts = attempts + 1, lease_token = lease_token - 1, move_id = 'next'")], FEWER,
    ),
    "claim with the same token": (
        [jobs(RETRIED), jobs(f"{CLAIMED}, attempts = attempts + 1, lease_token = lease_token, move_id = 'next'")], EDGE,
    ),
    "claim without an attempt": ([jobs(f"{CLAIMED}, lease_token = 5, {SIGNED}", WAITING)], EDGE),
    "claim without an owner": (
        [jobs(f"{CLAIMED.replace(chr(39) + 'x' + chr(39), 'NULL')}, attempts = attempts + 1, lease_token = 5, {SIGNED}",
              WAITING)], EDGE,
    ),
    "attempts without a claim": ([jobs("attempts = attempts + 1")], ONCE),
    "attempts go back": ([jobs("attempts = attempts - 1")], FEWER),
    "excused without an end": ([jobs("excused = 1")], ONCE),
    "excused twice by one end": (
        [jobs(f"{RETRIED}, excused = 1"),
         jobs(f"{CLAIMED}, attempts = attempts + 1, lease_token = lease_token + 1, move_id = 'next'"),
         jobs(f"{RETRIED.replace('act', 'last')}, excused = excused + 2")], {EDGE, *CHECK},
    ),
    "version without a move": ([jobs("version = version + 1, move_id = 'act'")], EDGE),
    "result without a commit": ([jobs("result = '1'")], ONCE),
    "result with a failure": ([jobs(f"{RETRIED}, result = '1'")], ONCE),
    "release without a grant": (
        [jobs(SHUT_AWAY, WAITING),
         jobs("state = 'pending', resting = NULL, due_at = run_at, version = version + 1, event = 'release',"
              " move_id = 'next'", WAITING)], GRANT,
    ),
    "due although running": ([jobs("due_at = run_at")], {EDGE, ONCE}),
    "not due although pending": ([jobs("due_at = NULL", WAITING)], {EDGE, ONCE}),
    "due at another time than it runs": ([jobs(f"due_at = '{LATER}'", WAITING)], {EDGE, ONCE}),
    "run later without a move": ([jobs(f"run_at = '{LATER}', due_at = '{LATER}'", WAITING)], ONCE),
    "resting although pending": ([jobs("resting = 'failed'", WAITING)], {EDGE, ONCE}),
    "id changed": ([jobs("job_id = 5000")], ONCE),
    "ids in a chain": (["UPDATE holdfast_jobs SET job_id = job_id + 1000"], ONCE),
    "id changed with a legal move": ([jobs(f"job_id = 5000, {DONE}")], ONCE),
    "operation changed": ([jobs("operation = 'x'")], ONCE),
    "queue changed": ([jobs("queue = 'x'", WAITING)], ONCE),
    "priority changed": ([jobs("priority = 9", WAITING)], ONCE),
    "history_from changed": ([jobs("history_from = 2")], ONCE),
    "payload changed": ([f"UPDATE holdfast_calls SET payload = NULL{RUNNING}"], ONCE),
    "key changed": ([f"UPDATE holdfast_calls SET key = 'other'{RUNNING}"], ONCE),
    "id of a call changed": ([f"UPDATE holdfast_calls SET job_id = 9999{WAITING}"], ONCE),
    "born in a later state": ([CALL, a_job("7000", "failed")], BIRTH),
    "born with a lease": ([CALL, a_job("7000", more=(", lease_token", ", 1"))], BIRTH),
    "born with a result": ([CALL, a_job("7000", more=(", result", ", '1'"))], BIRTH),
    "job without a call": ([a_job("7001")], BIRTH),
    "two rows, one illegal": ([jobs(TWO_ROWS, " WHERE job_id IN ({running}, {other})")], EDGE),
    "job deleted": ([f"DELETE FROM holdfast_jobs{RUNNING}"], DELETED),
    "call deleted": ([f"DELETE FROM holdfast_calls{RUNNING}"], DELETED),
    "ended attempts deleted": (["DELETE FROM holdfast_aborted"], DELETED),
    "ended attempts changed": (["UPDATE holdfast_aborted SET error_code = 'x'"], KEPT),
    "journal deleted": (["DELETE FROM holdfast_journal"], KEPT),
    "journal changed": (["UPDATE holdfast_journal SET actor = 'x'"], KEPT),
    "journal row by hand": ([journal()], BY_HAND),
    "ended attempt by hand": ([ended("{waiting}")], BY_HAND),
    "ended attempt of one that runs": ([ended("{running}")], BY_HAND),
    "ended attempt of one that succeeded": ([jobs(DONE), ended("{running}", "act")], BY_HAND),
    "view of the attempts changed": (["UPDATE holdfast_executions SET status = 'DONE'"], VIEW),
    "view of the attempts deleted": (["DELETE FROM holdfast_executions"], VIEW),
    "view of the edges changed": (["UPDATE holdfast_edges SET actor = 'x'"], VIEW),
    "view of the edges deleted": (["DELETE FROM holdfast_edges"], VIEW),
    "succeeded moves again": (
        [jobs(DONE), jobs(RETRIED.replace("+ 2", "+ 1").replace("'act'", "'next'"))], EDGE,
    ),
    "a success is rewritten": ([jobs(DONE), jobs("actor = 'x'")], ONCE),
    "a failure is rewritten": (["UPDATE holdfast_jobs SET last_error_code = 'x' WHERE job_id = {failed}"], ONCE),
    "a quarantine is rewritten": ([jobs(SHUT_AWAY, WAITING), jobs("quarantine_code = 'x'", WAITING)], ONCE),
    "progress of one that waits": ([jobs("progress = 1.0", WAITING)], ONCE),
    "a request to cancel one that waits": ([jobs(REQUESTED, WAITING)], ONCE),
    "a request to cancel by no one": ([jobs(f"cancel_requested_at = '{AT}'")], ONCE),
    "a request to cancel taken back": ([jobs(REQUESTED), jobs("cancel_requested_at = NULL")], ONCE),
}  # fmt: skip
POSTGRES: dict[str, Act] = {
    "second job with the id": ([a_job("{running}")], UNIQUE),
    "second call with the key": ([f"INSERT {SAME_KEY}"], UNIQUE),
    "upsert to an illegal state": (
        [a_job("{running}") + " ON CONFLICT (job_id) DO UPDATE SET state = 'failed', move_id = 'act'"], EDGE,
    ),
    "merge to an illegal state": ([f"{MERGE} {MERGED}"], EDGE),
    "two writes in one statement, one illegal": (
        [f"WITH f AS ({jobs(DONE)} RETURNING 1) {jobs(FAILED, WAITING)}"], EDGE,
    ),
    "jobs truncated": (["TRUNCATE holdfast_jobs CASCADE"], DELETED),
    "calls truncated": (["TRUNCATE holdfast_calls CASCADE"], DELETED),
    "ended attempts truncated": (["TRUNCATE holdfast_aborted"], DELETED),
    "journal truncated": (["TRUNCATE holdfast_journal"], DELETED),
    "partition truncated": (["TRUNCATE holdfast_journal_p0"], DELETED),
    "settings truncated": (["TRUNCATE holdfast_meta CASCADE"], DELETED),
    "partition row by hand": ([journal("holdfast_journal_p0")], BY_HAND),
    "journal row in a DO block that says it is a trigger": (
        [f"DO $d$BEGIN {journal()} /* function holdfast_jobs_moved() line */; END$d$"], BY_HAND,
    ),
    "ended attempt by a foreign trigger": (
        ["CREATE TEMP TABLE mine (x int)",
         f"{FORGE} $f$BEGIN {ended('{waiting}')}; RETURN NULL; END$f$",
         "CREATE TRIGGER m AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION pg_temp.forge()",
         "INSERT INTO mine VALUES (1)"], BY_HAND,
    ),
    "copy of a view": (["INSERT INTO holdfast_edges SELECT * FROM holdfast_edges"], VIEW),
}  # fmt: skip
SQLITE: dict[str, Act] = {
    "rowid changed": ([jobs("rowid = 5000")], ONCE),
    "OR REPLACE of an id": (["UPDATE OR REPLACE holdfast_jobs SET job_id = {other}" + RUNNING], ONCE),
    "OR REPLACE of a rowid": (["UPDATE OR REPLACE holdfast_jobs SET rowid = {other}" + RUNNING], ONCE),
    "rowid with a legal move": ([jobs(f"rowid = 5000, {DONE}")], ONCE),
    "OR REPLACE of a key": ([f"UPDATE OR REPLACE holdfast_calls SET {ANOTHERS_KEY}{RUNNING}"], ONCE),
    "rowid of a call": ([f"UPDATE holdfast_calls SET rowid = 9999{WAITING}"], ONCE),
    "job replaced": ([a_job("{running}", verb="REPLACE")], BIRTH),
    "job ignored": ([a_job("{running}", verb="INSERT OR IGNORE")], BIRTH),
    "upsert of a job": ([a_job("{running}") + " ON CONFLICT DO UPDATE SET state = 'failed'"], BIRTH),
    "call replaced": ([CALL.replace("7000", "{running}").replace("INSERT", "REPLACE")], BIRTH),
    "call replaced by its key": ([f"REPLACE {SAME_KEY}"], BIRTH),
    "rowid of the journal": (["UPDATE holdfast_journal SET rowid = rowid + 9"], KEPT),
    "journal replaced by number": (
        [journal().replace("INSERT", "REPLACE").replace("(epoch", "(seq, epoch").replace("VALUES (1", "VALUES (1, 1")],
        BY_HAND,
    ),
    "journal replaced by version": ([journal().replace("INSERT", "REPLACE").replace(", 2, 0,", ", 1, 0,")], BY_HAND),
    "journal row by a trigger of one's own": (
        ["CREATE TEMP TABLE mine (n)",
         f"CREATE TEMP TRIGGER t AFTER INSERT ON mine BEGIN {journal()}; END",
         "INSERT INTO mine VALUES (1)"], BY_HAND,
    ),
    "ended attempt by a trigger of one's own": (
        ["CREATE TEMP TABLE mine (n)",
         f"CREATE TEMP TRIGGER t AFTER INSERT ON mine BEGIN {ended('{waiting}')}; END",
         "INSERT INTO mine VALUES (1)"], BY_HAND,
    ),
    "ended attempt replaced": (
        ["REPLACE INTO holdfast_aborted SELECT * FROM holdfast_aborted"], BY_HAND,
    ),
    "setting replaced": (["REPLACE INTO holdfast_meta (name, value) VALUES ('environment', 'stage')"], ONCE),
}  # fmt: skip
ACTS = {
    **{("sqlite", name): act for name, act in {**BOTH, **SQLITE}.items()},
    **{("postgres", name): act for name, act in {**BOTH, **POSTGRES}.items()},
}


def place(hand: Hand) -> dict[str, object]:
    """Write jobs in the states that the acts begin with; return what their texts name."""
    hand.born(JOB)
    return {
        "running": hand.attempt(ExecutionStatus.IN_PROGRESS),
        "other": hand.attempt(ExecutionStatus.IN_PROGRESS),
        "leased": hand.attempt(ExecutionStatus.LEASED),
        "failed": hand.put(JOB, JobState.FAILED),
        "waiting": hand.born(JOB),
        "no": "0" if hand.client.dialect == "sqlite" else "false",
    }


@pytest.fixture
def acting(request: pytest.FixtureRequest) -> tuple[Client, list[str], Any]:
    dialect, name = request.param
    client: Client = request.getfixturevalue(f"{dialect}_client")
    statements, codes = ACTS[dialect, name]
    names = place(Hand(client))
    return client, [statement.format(**names) for statement in statements], codes


MARKS = [
    pytest.param(act, marks=[pytest.mark.pg] if act[0] == "postgres" else [], id=f"{act[0]}-{act[1]}") for act in ACTS
]


@pytest.mark.req("K-01", "K-10", "K-11", "X-01")
@pytest.mark.parametrize("acting", MARKS, indirect=True)
def test_an_illegal_act_is_refused_with_its_code_and_leaves_nothing(acting: tuple[Client, list[str], Any]) -> None:
    client, [*before, act], codes = acting
    if "MERGE" in act and client.connection.info.server_version < 150000:
        pytest.skip("MERGE came with PostgreSQL 15")
    for statement in before:
        client.run(statement)
    with untouched(client, *TABLES):
        refusal = client.refusal(act)
    assert refusal in (codes if isinstance(codes, set) else {codes})


def test_legal_acts_pass_from_any_client(client: Client, hand: Hand) -> None:
    names = place(hand)
    for sql in (
        jobs("state = state, status = status"),
        jobs(f"lease_expires_at = '{LATER}', progress = 0.5, progress_note = 'half', {REQUESTED}"),
        jobs(f"status = 'IN_PROGRESS', event = 'start', started_at = '{AT}', {SIGNED}", LEASED),
        jobs(f"{DONE}, result = '1'"),
        jobs(SHUT_AWAY, WAITING),
    ):
        assert client.changed(sql.format(**names)) == 1, sql


def test_at_least_the_designed_number_of_acts_is_tested() -> None:
    assert len([act for act in ACTS if act[0] == "postgres"]) >= 62
    assert len([act for act in ACTS if act[0] == "sqlite"]) >= 56


# -- as Holdfast reports it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sets",
    ["due_at = run_at", "resting = 'failed'", "status = 'DONE'", "status = NULL", "lease_expires_at = NULL",
     "state = 'pending'", "state = 'succeeded'"],
)  # fmt: skip
def test_a_check_that_refuses_is_reported_as_an_illegal_edge(ledger_url: str, sets: str) -> None:
    """The CHECKs hold under maintenance too, where no trigger refuses."""
    with create_store(ledger_url) as store:
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}")], actor="client-1")
            transaction.executions.claim(Lease(owner="worker-1", seconds=30))
        with (
            pytest.raises(RefusedByDatabaseError) as refused,
            store.transaction() as transaction,
            transaction.maintenance.open(who="ann", why="a test"),
        ):
            transaction.execute(f"UPDATE holdfast_jobs SET {sets}, version = version + 1, move_id = 'half'")
        assert refused.value.context == {"refusal": "HF001"}
