"""`check` finds every listed corruption where it is, and nothing where nothing is wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from holdfast.audit.check import job_rules
from holdfast.audit.check.catalogue import BY_NAME, INVARIANTS, LedgerInvariant
from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import CheckReport, Finding, Severity, Violation
from holdfast.audit.check.runner import KINDS, LedgerCheck, check, check_in, check_jobs, check_steps
from holdfast.audit.check.walker import Walker
from holdfast.core.errors import InputError, NotALedgerError, SchemaVersionError
from holdfast.core.steps import run_steps
from holdfast.engine.upkeep.retention import Retention, gc
from holdfast.store import connect, create_store, open_store
from holdfast.store.requests import ENGINE
from holdfast.testing import VirtualClock
from tests.audit.corruptions import CORRUPTIONS, Found, corrupt
from tests.audit.knife import LONG_AGO, drop_triggers, unguarded
from tests.audit.rich import Maker, Rich
from tests.enforcement.raw import Client
from tests.enforcement.schema import everything_in

pytestmark = pytest.mark.attack("sql")

EVERY_JOB = range(1, 100)
RICH = {"jobs": 18, "executions": 14, "journal": 82}  # what the rich ledger holds


def pairs(violations: Sequence[Violation]) -> Found:
    return {(violation.invariant, violation.subject) for violation in violations}


def checked(url: str, clock: VirtualClock) -> CheckReport:
    with connect(url, clock) as store:
        return check(store)


# ---------------------------------------------------------------------------------------------------------------------
# What is wrong


@pytest.mark.req("G-06", "G-07", "G-16", "G-22", "G-27", "M-11", "M-19", "K-05")
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_is_found_where_it_is_and_nowhere_else(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, name: str
) -> None:
    url, rich = rich_ledger
    expected = corrupt(url, rich, name)
    with connect(url, rich_clock) as store:
        report = check(store)
        with store.reading() as reading:
            alone = check_jobs(reading, EVERY_JOB)
            assert check_in(reading) == report
        quick = check(store, cheap=True)
    assert pairs(report.violations) == expected
    assert report.ok is all(violation.severity is Severity.WARNING for violation in report.violations)
    judged = {name for name, invariant in BY_NAME.items() if invariant.of_job or invariant.of_record}
    of_jobs = {pair for pair in expected if pair[0] in judged and pair[1].startswith(("JOB ", "EXECUTION "))}
    assert pairs(alone) == of_jobs
    assert pairs(quick.violations) == quickly_found(expected)


def quickly_found(expected: Found) -> Found:
    """Return what a quick look must find too: of the seals, only what is wrong at their end; of ids nothing."""
    cheap = {invariant.name for invariant in INVARIANTS if invariant.cheap}
    slow = {pair for pair in expected if pair == ("seals_chained", "SEAL 1") or pair[1].startswith("SEQUENCE ")}
    return {pair for pair in expected if pair[0] in cheap} - slow


@pytest.mark.req("G-16")
def test_every_invariant_has_a_corruption_that_breaks_it(rich_sqlite: tuple[str, Rich]) -> None:
    broken: set[str] = set()
    with unguarded(*rich_sqlite) as knife:
        for plant in CORRUPTIONS.values():
            with knife.client.undone():
                broken |= {invariant for invariant, _ in plant(knife)}
        knife.after, knife.keep_counts = [], False
    assert broken == BY_NAME.keys()
    assert len(CORRUPTIONS) >= 25


@pytest.mark.req("L-12")
@pytest.mark.parametrize("environment", ["dev", "stage", "prod"])
def test_outside_dev_an_active_grant_approved_by_its_requester_is_found(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, environment: str
) -> None:
    url, rich = rich_ledger
    with unguarded(url, rich) as knife:
        knife.run("UPDATE holdfast_meta SET value = ? WHERE name = 'environment'", environment)
        knife.run("UPDATE holdfast_grants SET approved_by = requested_by WHERE approved_by IS NOT NULL")
    report = checked(url, rich_clock)
    broken = ("grants_authentic", f"GRANT {rich.active_grant}", {"kind": "approved_by", "requested_by": "operator-1"})
    expected = [] if environment == "dev" else [broken]
    if environment == "prod":  # the approver was registered in dev, and no raise of the environment is journalled
        doubt = {"kind": "approver", "name": "approver-1", "doubt": "approver_unproven"}
        expected.append(("grants_authentic", "APPROVER approver-1", doubt))
    all_found = [(found.invariant, found.subject, found.evidence) for found in report.violations]
    # Used grants are doubted: their way of approval does not count outside dev.
    used = [one for one in all_found if one[2].get("kind") == "approval"]
    assert [one for one in all_found if one not in used] == expected
    assert {name for name, _, _ in used} == (set() if environment == "dev" else {"grants_authentic"})


@pytest.mark.req("G-16")
@pytest.mark.parametrize(
    "state, columns",
    [
        ("waiting", {"due_at": None}),
        ("waiting", {"due_at": LONG_AGO}),
        ("waiting", {"resting": "failed"}),
        ("waiting", {"status": "IN_PROGRESS"}),
        ("waiting", {"lease_expires_at": LONG_AGO}),
        ("failed", {"resting": None}),
        ("failed", {"resting": "quarantined"}),
        ("failed", {"due_at": LONG_AGO}),
        ("running", {"status": None}),
        ("running", {"status": "DONE"}),
        ("running", {"lease_expires_at": None}),
        ("running", {"lease_owner": None}),
        ("running", {"lease_token": None}),
        ("done", {"status": "COMMITTED"}),
        ("done", {"lease_expires_at": LONG_AGO}),
    ],
)
def test_columns_that_contradict_the_state_are_refused_by_the_schema_alone(
    rich_ledger: tuple[str, Rich], state: str, columns: dict[str, object]
) -> None:
    """Columns of a job that contradict its state are refused by CHECKs alone, without any trigger."""
    url, rich = rich_ledger
    client = Client(url)
    drop_triggers(client)
    sets = ", ".join(f"{column} = ?" for column in columns)
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.CheckViolation)):
        client.run(f"UPDATE holdfast_jobs SET {sets} WHERE job_id = ?", *columns.values(), getattr(rich, state))
    client.rollback()
    client.close()


def test_a_violation_names_its_subject_and_its_evidence(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    url, rich = rich_ledger
    corrupt(url, rich, "a_failed_job_called_pending")
    report = checked(url, rich_clock)
    found = next(violation for violation in report.violations if violation.invariant == "state_is_projected")
    assert (found.subject, found.severity, found.machine, found.id) == (
        f"JOB {rich.failed}",
        Severity.ERROR,
        "JOB",
        rich.failed,
    )
    assert found.evidence == {"kind": "state", "job_id": rich.failed, "state": "pending", "projected": "failed"}
    assert "pending" in found.detail
    assert "failed" in found.detail


def test_many_corruptions_are_found_together(rich_ledger: tuple[str, Rich], rich_clock: VirtualClock) -> None:
    url, rich = rich_ledger
    names = ("a_waiting_job_called_running", "a_quarantined_job_let_out", "a_result_that_is_gone", "a_stack_trace")
    expected = set().union(*(corrupt(url, rich, name) for name in names))
    assert pairs(checked(url, rich_clock).violations) == expected


@pytest.mark.req("G-16")
def test_an_id_twice_and_a_column_that_lacks_what_it_needs(
    rich_postgres: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    """On PostgreSQL an owner can take the primary key and NOT NULL away; on SQLite they are part of the table."""
    url, rich = rich_postgres
    with unguarded(url, rich) as knife:
        knife.run("ALTER TABLE holdfast_jobs DROP CONSTRAINT holdfast_jobs_pkey CASCADE")
        knife.run("ALTER TABLE holdfast_calls DROP CONSTRAINT holdfast_calls_pkey CASCADE")
        knife.run(f"INSERT INTO holdfast_jobs SELECT * FROM holdfast_jobs WHERE job_id = {rich.scheduled}")
        knife.run("ALTER TABLE holdfast_jobs ALTER COLUMN queue DROP NOT NULL")
        knife.run("UPDATE holdfast_jobs SET queue = NULL WHERE job_id = ?", rich.waiting)
        knife.run("ALTER TABLE holdfast_counts DROP CONSTRAINT holdfast_counts_pkey")
        knife.run("ALTER TABLE holdfast_counts ALTER COLUMN queue DROP NOT NULL")
    found = checked(url, rich_clock).violations
    assert pairs(found) == {
        ("one_state", f"JOB {rich.scheduled}"),
        ("fields_valid", f"JOB {rich.waiting}"),
        ("database", "TABLE holdfast_jobs"),
        ("database", "TABLE holdfast_counts"),
        ("database", "COLUMN holdfast_jobs.queue"),
        ("database", "COLUMN holdfast_counts.queue"),
        ("database", "TABLE holdfast_calls"),
        ("database", "CONSTRAINT holdfast_calls_replaces_fkey"),
        *(
            ("database", f"CONSTRAINT holdfast_{table}_job_id_fkey")
            for table in ("checkpoints", "erased", "slots", "traces", "tracebacks", "unique", "waits")
        ),
        ("database", "CONSTRAINT holdfast_after_parent_id_fkey"),
    }


def test_a_constraint_that_was_never_validated_is_found(
    rich_postgres: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    url, _ = rich_postgres
    with psycopg.connect(url) as session:
        session.execute("ALTER TABLE holdfast_jobs ADD CONSTRAINT holdfast_more CHECK (priority < 10) NOT VALID")
    [found] = checked(url, rich_clock).violations
    assert (found.invariant, found.subject) == ("database", "CONSTRAINT holdfast_more")


@pytest.mark.req("G-06")
def test_a_rule_that_fails_is_a_violation(rich_ledger: tuple[str, Rich], rich_clock: VirtualClock) -> None:
    def stumbles(_page: RuleContext) -> Iterator[Finding]:
        yield Finding("LEDGER", "found before it failed")
        raise ValueError("what it stumbled over")

    broken = LedgerInvariant(name="broken", meaning="", remedy="", of_ledger=(stumbles,))
    with connect(rich_ledger[0], rich_clock) as store:
        walker = Walker(store.reading, KINDS, limit=10, batch=10)
        run_steps(LedgerCheck(walker, [broken]).run())
    assert [violation.detail for violation in walker.violations] == [
        "found before it failed",
        "Invariant check failed: ValueError",
    ]
    assert not walker.report().ok


# ---------------------------------------------------------------------------------------------------------------------
# What is not wrong


@pytest.mark.req("G-06", "G-07", "M-11", "M-19", "K-05")
def test_a_sound_ledger_has_no_violation(rich_ledger: tuple[str, Rich], rich_clock: VirtualClock) -> None:
    url, _ = rich_ledger
    before = everything_in(url)
    with connect(url, rich_clock) as store:
        assert check(store) == CheckReport(ok=True, violations=(), checked=RICH)
        assert check(store, cheap=True).violations == ()
        with store.reading() as reading:
            assert check_in(reading) == CheckReport(ok=True, violations=(), checked=RICH)
            assert check_jobs(reading, EVERY_JOB) == []
    assert everything_in(url) == before


def test_an_empty_ledger_has_no_violation(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        assert check(store) == CheckReport(ok=True, violations=(), checked={"jobs": 0, "executions": 0, "journal": 0})


@pytest.mark.req("G-22")
def test_a_recovered_ledger_has_no_violation(rich_ledger: tuple[str, Rich], rich_clock: VirtualClock) -> None:
    url, rich = rich_ledger
    rich_clock.advance(2 * 86_400)
    with open_store(url, rich_clock) as store:
        overdue = check(store)
        assert overdue.ok
        assert {violation.invariant for violation in overdue.violations} == {"lease_overdue"}
        with store.transaction() as transaction:
            recovered = {attempt.job.job_id for attempt, _ in transaction.recovery.recover(actor="reaper")}
        assert recovered == {rich.running, rich.leased, rich.committed}
        assert check(store).violations == ()


@pytest.mark.parametrize("history_s", [None, 0.0])
def test_a_ledger_after_retention_has_no_violation(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, tmp_path: Path, history_s: float | None
) -> None:
    """Slimmed, archived where possible; the rows of the journal may still exist."""
    url, _ = rich_ledger
    archive_dir = None if history_s is None else str(tmp_path)
    policy = Retention(finished_s=0.0, quarantined_s=0.0, history_s=history_s, archive_dir=archive_dir)
    rich_clock.advance(3600)
    with open_store(url, rich_clock) as store:
        done = gc(store, policy, who="keeper")
        assert (done.finished, done.quarantined) == (2, 3)
        assert (len(list(tmp_path.iterdir())) > 0) is (history_s is not None)
        assert check(store).violations == ()
        make = Maker(store, rich_clock)
        make.complete(make.submit("later"))
        assert check(store).violations == ()


# ---------------------------------------------------------------------------------------------------------------------
# Options of a check


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_pages_of_any_size_find_the_same(rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, batch: int) -> None:
    url, rich = rich_ledger
    corrupt(url, rich, "an_attempt_that_has_ended_and_runs")
    reported: list[tuple[str, int]] = []
    with connect(url, rich_clock) as store:
        paged = check(store, batch=batch, on_progress=lambda what, n: reported.append((what, n)))
        assert paged == check(store)
    assert reported[-1] == ("jobs", RICH["jobs"])
    assert len(reported) == -(-RICH["jobs"] // batch)


@pytest.mark.parametrize("limit", [1, 1000])
def test_violations_are_reported_after_the_step_that_found_them(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock, limit: int
) -> None:
    url, rich = rich_ledger
    corrupt(url, rich, "an_attempt_that_has_ended_and_runs")
    found: list[Violation] = []
    with connect(url, rich_clock) as store:
        steps = check_steps(store, batch=1, limit=limit, on_found=found.extend)
        at = [len(found) for _ in steps]
        assert found == list(check(store, limit=limit).violations)
    assert at == sorted(at)
    assert at[0] == 0
    assert at[-1] == len(found)
    assert at.count(len(found)) > 1  # not only at the end


def test_only_the_named_invariants_are_checked(rich_ledger: tuple[str, Rich], rich_clock: VirtualClock) -> None:
    url, rich = rich_ledger
    corrupt(url, rich, "a_failed_job_called_pending")
    with connect(url, rich_clock) as store:
        report = check(store, only=["state_is_projected"])
        assert pairs(report.violations) == {("state_is_projected", f"JOB {rich.failed}")}
        assert check(store, only=["counts_true"]).ok
        with pytest.raises(InputError) as raised:
            check(store, only=["counts_true", "counts_false"])
    assert raised.value.context == {"unknown": ["counts_false"]}


def test_a_check_stops_at_its_limit_and_reports_that(rich_ledger: tuple[str, Rich], rich_clock: VirtualClock) -> None:
    url, rich = rich_ledger
    corrupt(url, rich, "a_quarantined_job_let_out")
    with connect(url, rich_clock) as store:
        report = check(store, limit=2)
        assert (len(report.violations), report.more, report.ok) == (2, True, False)
        assert not check(store).more
        for limit, batch in ((0, 1), (1, 0)):
            with pytest.raises(InputError):
                check(store, limit=limit, batch=batch)


def changed_by_hand(url: str, statement: str) -> str:
    client = Client(url)
    client.run(statement)
    client.commit()
    client.close()
    return url


def test_a_database_without_a_ledger_is_a_typed_error(empty_url: str) -> None:
    changed_by_hand(empty_url, "CREATE TABLE mine (n integer)")
    with connect(empty_url) as store, pytest.raises(NotALedgerError):
        check(store)


def test_a_ledger_of_another_version_is_a_typed_error(rich_ledger: tuple[str, Rich]) -> None:
    url = changed_by_hand(rich_ledger[0], "UPDATE holdfast_migrations SET number = 1000 WHERE number = 1")
    with connect(url) as store, pytest.raises(SchemaVersionError):
        check(store)


def test_a_check_in_a_transaction_accepts_its_own_open_maintenance(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    with open_store(rich_ledger[0], rich_clock) as store, store.transaction() as transaction:
        with transaction.maintenance.open(who="operator", why="to look") as door:
            transaction.maintenance.note(door, "look", n=1)
            assert check_in(transaction).violations == ()
        assert check_in(transaction).violations == ()


def test_history_that_maintenance_cut_off_is_no_violation(
    rich_ledger: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    """The same cut is a violation when it is made without maintenance."""
    url, rich = rich_ledger
    with open_store(url, rich_clock) as store:
        with store.transaction() as transaction, transaction.maintenance.open(who="operator", why="rows were lost"):
            transaction.execute(f"UPDATE holdfast_jobs SET history_from = 2 WHERE job_id = {rich.failed}")
        assert check(store).violations == ()


def test_the_check_and_the_engine_name_the_same_client_of_followups() -> None:
    assert job_rules.FOLLOWUP_CLIENT == ENGINE


def test_a_lease_may_be_late_by_a_minute(rich_ledger: tuple[str, Rich], rich_clock: VirtualClock) -> None:
    url, rich = rich_ledger
    with unguarded(url, rich) as knife:
        [exec_id] = knife.executions(rich.running)
        knife.set("JOB", rich.running, lease_expires_at="2030-01-01T00:00:00.000000Z")
    clock = VirtualClock(rich_clock().replace(year=2030, month=1, day=1, hour=0, minute=0, second=59, microsecond=0))
    with connect(url, clock) as store:
        found = check(store, only=["lease_overdue"])
        assert f"EXECUTION {exec_id}" not in {violation.subject for violation in found.violations}
        clock.advance(1)
        found = check(store, only=["lease_overdue"])
        assert f"EXECUTION {exec_id}" in {violation.subject for violation in found.violations}
    assert LONG_AGO < "2030"
