"""The invariants and the integrity check: they report changes made outside the ledger, and nothing else."""

from __future__ import annotations

import itertools
import logging
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import pytest

from holdfast import Ledger
from holdfast.compat import (
    IdempotentJobQueue,
    JobNotFoundError,
    JobStatus,
    StateMachineInvariants,
    StateMachineValidator,
    validate_database_integrity,
)
from holdfast.core.errors import EnforcementDriftError
from holdfast.store.tables import table_named
from holdfast.testing import VirtualClock
from tests.audit.knife import Knife, unguarded
from tests.compat.actor import job
from tests.compat.conftest import Open
from tests.compat.support import put, random_histories, rows

pytestmark = pytest.mark.attack("sql")

RUNNING_WITHOUT = "RUNNING jobs without active workers detected"
MANY_STATES = "Jobs in more or less than one state detected: "
CHANGED = "SUCCEEDED jobs that changed detected: "
ATTEMPTS = "Jobs whose attempts did not only grow detected: "
PENDING, RUNNING, SUCCEEDED, FAILED, QUARANTINED = JobStatus


class Orchestrator:
    """The least that runs a queue's jobs: it knows what it works on."""

    def __init__(self, queue: IdempotentJobQueue) -> None:
        self._job_queue = queue
        self._active_jobs_map: dict[str, object] = {}

    def start(self, job_id: str) -> None:
        put(self._job_queue, RUNNING, job_id)
        self._active_jobs_map[job_id] = {"job_type": "local_files"}


@pytest.fixture
def orchestrator(queue: IdempotentJobQueue) -> Orchestrator:
    """One that has a job in every state, the running one in its hands."""
    made = Orchestrator(queue)
    for status in (PENDING, SUCCEEDED, FAILED, QUARANTINED):
        put(queue, status, str(status))
    made.start("running")
    return made


@contextmanager
def cut(url: str) -> Iterator[Knife]:
    """Edit a ledger past its triggers: guards off, the edit, guards on again."""
    with unguarded(url, cast("Any", None)) as knife:
        yield knife


def ledger_id(url: str, job_id: str) -> int:
    [(found,)] = rows(url, f"SELECT job_id FROM holdfast_calls WHERE key = '{job_id}'")
    return int(found)


def violations(orchestrator: Orchestrator) -> list[str]:
    found = StateMachineInvariants.check_invariants(orchestrator)
    assert StateMachineValidator().check_invariants(orchestrator) == found
    return found


# ---------------------------------------------------------------------------------------------------------------------
# No violations


@pytest.mark.req("G-06", "G-07", "G-16")
def test_random_histories_break_no_invariant(ledger_url: str) -> None:
    names = [f"job-{n}" for n in range(30)]
    with IdempotentJobQueue(ledger_url) as queue:
        for name in names:
            queue.enqueue(job(name, max_attempts=5))
        random_histories(ledger_url, 606, names, steps=40)
        orchestrator = Orchestrator(queue)
        orchestrator._active_jobs_map = {row["job_id"]: None for row in queue.snapshot(RUNNING)}
        assert violations(orchestrator) == []
        assert all(StateMachineInvariants.check_job_in_single_state(name, queue) for name in names)
        assert StateMachineInvariants.check_running_jobs_have_workers(orchestrator)
        assert StateMachineInvariants.check_succeeded_jobs_immutable(queue)
        assert StateMachineInvariants.check_attempts_monotonic(queue)
        assert validate_database_integrity(queue) == []
        assert queue.integrity_issues == []


@pytest.mark.req("G-07", "G-16")
def test_data_dropped_by_retention_is_no_violation(
    orchestrator: Orchestrator, queue: IdempotentJobQueue, ledger_url: str, clock: VirtualClock
) -> None:
    done = [ledger_id(ledger_url, str(status)) for status in (SUCCEEDED, QUARANTINED)]
    with queue.store.transaction() as transaction, transaction.maintenance.open(who="test", why="retention"):
        assert transaction.retention.slim(done, before=clock.after(1)) == done
    with cut(ledger_url) as knife:  # as an archived history looks
        for job_id in done:
            knife.run("DELETE FROM holdfast_journal WHERE machine = 'JOB' AND subject = ?", job_id)
            knife.run("UPDATE holdfast_jobs SET history_from = version + 1 WHERE job_id = ?", job_id)
    assert violations(orchestrator) == []
    assert validate_database_integrity(queue) == []


def test_jobs_of_other_clients_are_not_checked(
    orchestrator: Orchestrator, queue: IdempotentJobQueue, ledger_url: str
) -> None:
    with Ledger(ledger_url) as ledger:
        ledger.submit("noop", {}, priority=99)
        receipt = ledger.submit("noop", {}, client="compat", key="elsewhere", priority=-5)
    with cut(ledger_url) as knife:
        knife.set("JOB", receipt.job_id, state="lost")
    assert violations(orchestrator) == []
    assert validate_database_integrity(queue) == []


# ---------------------------------------------------------------------------------------------------------------------
# Running jobs have workers


@pytest.mark.req("G-06", "G-07")
def test_a_running_job_without_a_worker_is_reported(orchestrator: Orchestrator) -> None:
    assert violations(orchestrator) == []
    assert StateMachineInvariants.check_running_jobs_have_workers(orchestrator)
    orchestrator._active_jobs_map["pending"] = None  # more than runs is no harm
    assert violations(orchestrator) == []
    del orchestrator._active_jobs_map["running"]
    assert not StateMachineInvariants.check_running_jobs_have_workers(orchestrator)
    assert violations(orchestrator) == [RUNNING_WITHOUT]


@pytest.mark.req("G-07")
def test_every_running_job_is_looked_at(queue: IdempotentJobQueue) -> None:
    orchestrator = Orchestrator(queue)
    for n in range(120):  # more than a snapshot shows
        orchestrator.start(f"job-{n}")
    assert violations(orchestrator) == []
    orchestrator._active_jobs_map.pop("job-0")
    assert violations(orchestrator) == [RUNNING_WITHOUT]


@pytest.mark.req("G-06")
def test_a_check_that_fails_is_a_violation_and_raises_nothing(
    orchestrator: Orchestrator, sqlite_url: str, opened: Open, ledger_url: str
) -> None:
    class Nothing:
        pass

    found = StateMachineInvariants.check_invariants(cast("Orchestrator", Nothing()))
    assert found == ["Invariant check failed: 'Nothing' object has no attribute '_job_queue'"] * 4

    class WithoutMap:
        _job_queue = orchestrator._job_queue

    pending = ledger_id(ledger_url, "pending")
    with cut(ledger_url) as knife:
        knife.set("JOB", pending, state="failed")
    # The other checks still run.
    found = StateMachineInvariants.check_invariants(cast("Orchestrator", WithoutMap()))
    assert found == [
        f"{MANY_STATES}pending",
        "Invariant check failed: 'WithoutMap' object has no attribute '_active_jobs_map'",
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Changes made outside the ledger


class Planted(NamedTuple):
    """A corruption: the status of its job, the edit, and the invariants that it breaks."""

    status: JobStatus
    edit: Callable[[Knife, int], object]
    broken: set[str]


def without_last_row(knife: Knife, job_id: int, **columns: object) -> None:
    """Edit a failed job, and take the last row of its journal away."""
    knife.set("JOB", job_id, **columns)
    knife.run("DELETE FROM holdfast_journal WHERE machine = 'JOB' AND subject = ? AND target = 'failed'", job_id)


PLANTED = {
    "a state that is none": Planted(PENDING, lambda k, n: k.set("JOB", n, state="lost"), {MANY_STATES}),
    "let out": Planted(QUARANTINED, lambda k, n: k.set("JOB", n, state="pending"), {MANY_STATES}),
    "held by no worker": Planted(RUNNING, lambda k, n: k.set("JOB", n, status=None), {MANY_STATES}),
    "failed and held": Planted(FAILED, lambda k, n: k.set("JOB", n, status="IN_PROGRESS"), {MANY_STATES}),
    "without a journal": Planted(
        FAILED,
        lambda k, n: k.run("DELETE FROM holdfast_journal WHERE machine = 'JOB' AND subject = ?", n),
        {MANY_STATES},
    ),
    "taken back": Planted(SUCCEEDED, lambda k, n: k.set("JOB", n, state="pending"), {MANY_STATES, CHANGED}),
    "with another version": Planted(SUCCEEDED, lambda k, n: k.set("JOB", n, version=9), {MANY_STATES, CHANGED}),
    "touched later": Planted(
        SUCCEEDED, lambda k, n: k.set("JOB", n, updated_at="2031-01-01T00:00:00.000000Z"), {CHANGED}
    ),
    "moved on": Planted(
        SUCCEEDED, lambda k, n: k.forge("JOB", n, source="succeeded", target="pending", event="retry"), {CHANGED}
    ),
    "fewer attempts": Planted(FAILED, lambda k, n: k.set("JOB", n, attempts=0), {ATTEMPTS}),
    "more attempts": Planted(FAILED, lambda k, n: k.set("JOB", n, attempts=7), {ATTEMPTS}),
    "fewer, and no journal row": Planted(
        FAILED,
        lambda k, n: without_last_row(k, n, attempts=0),
        {MANY_STATES, ATTEMPTS},
    ),
    "fewer on the way": Planted(SUCCEEDED, lambda k, n: k.set_row(k.row("JOB", n, "claim"), attempt=3), {ATTEMPTS}),
}


@pytest.mark.req("G-06", "G-07")
def test_a_change_made_outside_the_ledger_is_reported(
    orchestrator: Orchestrator, queue: IdempotentJobQueue, ledger_url: str
) -> None:
    for name, planted in PLANTED.items():
        if planted.status is RUNNING:
            orchestrator.start(name)
        else:
            put(queue, planted.status, name)
    assert violations(orchestrator) == []
    ids = {name: ledger_id(ledger_url, name) for name in PLANTED}
    with cut(ledger_url) as knife:
        for name, planted in PLANTED.items():
            planted.edit(knife, ids[name])
    # Each is reported under each invariant that it breaks, and nothing else is.
    broken = {
        invariant: [name for name, planted in PLANTED.items() if invariant in planted.broken]
        for invariant in (MANY_STATES, CHANGED, ATTEMPTS)
    }
    assert violations(orchestrator) == [f"{invariant}{', '.join(names)}" for invariant, names in broken.items()]
    for name in (*PLANTED, *map(str, JobStatus)):
        alone = StateMachineInvariants.check_job_in_single_state(name, queue)
        assert (name, alone) == (name, name not in broken[MANY_STATES])
    assert not StateMachineInvariants.check_succeeded_jobs_immutable(queue)
    assert not StateMachineInvariants.check_attempts_monotonic(queue)


def test_a_job_that_is_not_there_has_no_state_to_check(queue: IdempotentJobQueue) -> None:
    with pytest.raises(JobNotFoundError):
        StateMachineInvariants.check_job_in_single_state("nobody", queue)


# ---------------------------------------------------------------------------------------------------------------------
# Integrity


def without_not_null(knife: Knife, column: str) -> None:
    """Let a column be NULL: a client that edits the schema can."""
    if knife.dialect == "postgres":
        knife.run(f"ALTER TABLE holdfast_jobs ALTER COLUMN {column} DROP NOT NULL")


@contextmanager
def nullable(url: str) -> Iterator[None]:
    """Edit the schema of a SQLite file so that every column may be NULL, and put it back."""
    if not url.startswith("sqlite"):
        yield
        return
    path = urlsplit(url).path[1:]
    [(text,)] = rows(url, "SELECT sql FROM sqlite_master WHERE name = 'holdfast_jobs'")
    _schema(path, re.sub(r"(?<!IS) NOT NULL", "", text))
    yield
    _schema(path, text)


def _schema(path: str, text: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'holdfast_jobs'", (text,))
        [version] = connection.execute("PRAGMA schema_version").fetchone()
        connection.execute(f"PRAGMA schema_version = {version + 1}")
        connection.commit()


@pytest.mark.req("G-16", "G-24")
def test_damage_is_reported_for_each_row_and_on_load(
    orchestrator: Orchestrator,
    queue: IdempotentJobQueue,
    opened: Open,
    ledger_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert validate_database_integrity(queue) == []
    ids = {str(status): ledger_id(ledger_url, str(status)) for status in JobStatus}
    with nullable(ledger_url), cut(ledger_url) as knife:
        without_not_null(knife, "operation")
        knife.keep_counts = False
        knife.set("JOB", ids["pending"], state="lost")
        knife.set("JOB", ids["failed"], attempts=-1, excused=-1)
        knife.set("JOB", ids["quarantined"], priority=4)
        knife.set("JOB", ids["succeeded"], priority=0)
        knife.set("JOB", ids["running"], operation=None)
    expected = [
        "Invalid statuses: ('pending', 'lost')",
        "Negative attempts: ('failed', -1)",
        f"NULL in required fields: ('running', {ids['running']})",
        "Priorities out of range: ('succeeded', 0), ('quarantined', 4)",
    ]
    assert validate_database_integrity(queue) == expected
    with caplog.at_level(logging.ERROR, logger="holdfast.compat"):
        loaded = opened()
    assert loaded.integrity_issues == expected
    logged = [record for record in caplog.records if record.name == "holdfast.compat.job_queue"]
    assert [(record.message, record.__dict__["issue"]) for record in logged] == [
        ("The database is damaged", issue) for issue in expected
    ]


@pytest.mark.req("G-16")
def test_a_missing_payload_is_accepted_only_for_ended_jobs(
    orchestrator: Orchestrator, queue: IdempotentJobQueue, ledger_url: str
) -> None:
    with cut(ledger_url) as knife:
        knife.run("UPDATE holdfast_calls SET payload = NULL")
        knife.run("UPDATE holdfast_jobs SET result = NULL")
    ids = [(name, ledger_id(ledger_url, name)) for name in ("pending", "failed", "running")]
    assert validate_database_integrity(queue) == [f"NULL in required fields: {', '.join(map(str, ids))}"]


@pytest.mark.req("G-16")
def test_two_jobs_with_one_id_are_reported(
    orchestrator: Orchestrator, queue: IdempotentJobQueue, opened: Open, ledger_url: str
) -> None:
    first = ledger_id(ledger_url, "failed")
    with cut(ledger_url) as knife:
        knife.run("DROP INDEX holdfast_calls_key")
        for number, table in itertools.product(range(2), ("calls", "jobs")):
            columns = ", ".join(name for name in table_named(table).names if name != "job_id")
            knife.run(
                f"INSERT INTO holdfast_{table} (job_id, {columns})"
                f" SELECT {first} + 1000 + {number}, {columns} FROM holdfast_{table} WHERE job_id = {first}"
            )
    assert validate_database_integrity(queue) == ["Duplicate job IDs: failed"]
    assert violations(orchestrator) == [f"{MANY_STATES}failed, failed, failed"]
    assert not StateMachineInvariants.check_job_in_single_state("failed", queue)
    # Without the index that forbids it a ledger does not even open.
    with pytest.raises(EnforcementDriftError) as caught:
        opened()
    assert caught.value.context == {"differs": ["holdfast_calls_key"]}


def test_a_long_list_is_cut(queue: IdempotentJobQueue, ledger_url: str) -> None:
    for n in range(14):
        queue.enqueue(job(f"j{n:02}"))
    with cut(ledger_url) as knife:
        knife.run("UPDATE holdfast_jobs SET priority = 9")
    shown = ", ".join(f"('j{n:02}', 9)" for n in range(10))
    assert validate_database_integrity(queue) == [f"Priorities out of range: {shown} and 4 more"]
