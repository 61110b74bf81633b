"""`repair` mends every listed corruption or quarantines its job, touches nothing else, and keeps what was there."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.audit.check.runner import check
from holdfast.audit.check.walker import LIMIT
from holdfast.audit.repair.repair import UNREPAIRABLE, RepairReport, plan
from holdfast.audit.repair.repair import repair as carry_out
from holdfast.core.authority import Act
from holdfast.core.errors import AuthorityError, InputError, PlanStaleError
from holdfast.core.machines import EXEC_IDS, JobState
from holdfast.governance.grants import permission
from holdfast.store import Store, connect
from holdfast.store.migrations import verify
from holdfast.store.requests import Submission
from holdfast.testing import VirtualClock
from tests.audit.conftest import RICH
from tests.audit.corruptions import CORRUPTIONS, Found, corrupt
from tests.audit.knife import unguarded
from tests.audit.rich import Rich
from tests.support.postgres import Server, tmpfs_directory

TABLES = ("holdfast_calls", "holdfast_jobs", "holdfast_aborted", "holdfast_grants", "holdfast_checkpoints",
          "holdfast_journal", "holdfast_counts", "holdfast_count_deltas", "holdfast_seals",
          "holdfast_meta")  # fmt: skip


@pytest.fixture
def broken(rich_ledger: tuple[str, Rich], rich_clock: VirtualClock) -> Iterator[tuple[Store[Any], Rich]]:
    """The store of a rich ledger of each kind in turn, to be broken."""
    url, rich = rich_ledger
    with connect(url, rich_clock) as store:
        yield store, rich


def repair(store: Store[Any], *, operator: str, reason: str, expected: str) -> RepairReport:
    """Repair as the command does, under a grant of the operator's own."""
    permit = permission(Act.REPAIR, "ledger", executor=operator, reason=reason, plan=expected)
    return carry_out(store, operator=operator, reason=reason, expected=expected, permit=permit)


def contents(store: Store[Any]) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that the ledger holds."""
    with store.reading() as reading:
        return {table: sorted(reading.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}


def jobs(store: Store[Any]) -> dict[int, dict[str, Any]]:
    """Every job with its call."""
    with store.reading() as reading:
        ids = [job_id for (job_id,) in reading.execute("SELECT job_id FROM holdfast_jobs")]
        images = reading.maintenance.images
        return {
            job_id: {**image, **call}
            for job_id in ids
            for image in images("holdfast_jobs", job_id=job_id)
            for call in images("holdfast_calls", job_id=job_id)
        }


def mended(store: Store[Any], before: dict[int, dict[str, Any]]) -> None:
    """Plan, apply, and compare the result with the ledger before the corruption."""
    found = contents(store)
    planned = plan(store)
    assert contents(store) == found  # a dry run changes nothing
    assert not planned.applied
    done = repair(store, operator="ann", reason="after the incident", expected=planned.digest)
    assert [(act.kind, act.subject, act.after) for act in done.acts] == [
        (act.kind, act.subject, act.after) for act in planned.acts
    ]
    assert {violation.invariant for violation in done.left} <= UNREPAIRABLE
    assert check(store).violations == done.left
    verify(store)
    touched = {act.id for act in done.acts if act.machine == "JOB"}
    recovered = {act.before["job_id"] for act in done.acts if act.kind == "recover" and act.before}
    after = jobs(store)
    assert before.keys() <= after.keys()
    for job_id, image in before.items():
        if job_id in recovered:
            assert (image["state"], after[job_id]["state"]) == (JobState.RUNNING, JobState.PENDING)
        elif job_id not in touched:
            assert after[job_id] == image
        else:
            # Never a wrong repair: each job is as before, or quarantined.
            assert after[job_id]["state"] in (image["state"], JobState.QUARANTINED)
    notes = [json.loads(row["reason"]) for row in maintenance_rows(store) if row["event"] == "repair"]
    assert [note["subject"] for note in notes] == [act.subject for act in done.acts if act.kind != "rewrite"]
    assert [note["before"] for note in notes] == [act.before for act in done.acts if act.kind != "rewrite"]


def maintenance_rows(store: Store[Any]) -> list[dict[str, Any]]:
    with store.reading() as reading:
        rows = reading.maintenance.images("holdfast_journal", machine="MAINTENANCE", actor="ann")
    return sorted(rows, key=lambda row: row["seq"])


@pytest.mark.req("G-22", "M-11")
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_is_repaired_or_its_job_quarantined(broken: tuple[Store[Any], Rich], name: str) -> None:
    store, rich = broken
    before = jobs(store)
    corrupt(store.url, rich, name)
    mended(store, before)


def test_nothing_to_repair(broken: tuple[Store[Any], Rich]) -> None:
    store, _ = broken
    found = contents(store)
    planned = plan(store)
    assert (planned.ok, planned.acts, planned.violations) == (True, (), ())
    repair(store, operator="ann", reason="to be sure", expected=planned.digest)
    assert contents(store) == found


def test_a_plan_that_went_stale_is_refused(broken: tuple[Store[Any], Rich]) -> None:
    store, rich = broken
    corrupt(store.url, rich, "a_count_too_high")
    planned = plan(store)
    corrupt(store.url, rich, "a_failed_job_called_pending")
    found = contents(store)
    with pytest.raises(PlanStaleError):
        repair(store, operator="ann", reason="late", expected=planned.digest)
    assert contents(store) == found


def test_a_plan_to_recount_stays_valid_while_others_work(broken: tuple[Store[Any], Rich]) -> None:
    store, rich = broken
    corrupt(store.url, rich, "a_waiting_job_called_failed")
    corrupt(store.url, rich, "counts_of_nothing")
    planned = plan(store)
    with store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="echo", payload="{}", client="c", queue="default")])
    done = repair(store, operator="ann", reason="x", expected=planned.digest)
    assert [(act.kind, act.subject) for act in done.acts] == [("move", f"JOB {rich.waiting}"), ("recount", "COUNTS")]
    assert check(store).violations == ()


def test_more_violations_than_a_check_lists_are_repaired_at_once(
    rich_sqlite: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    url, rich = rich_sqlite
    with connect(url, rich_clock) as store:
        many_at_once(store, rich)


@pytest.mark.slow
@pytest.mark.pg
def test_more_violations_than_a_check_lists_are_repaired_at_once_on_postgres(
    rich_postgres: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    url, rich = rich_postgres
    with connect(url, rich_clock) as store:
        many_at_once(store, rich)


def many_at_once(store: Store[Any], rich: Rich) -> None:
    with store.transaction() as transaction:
        transaction.jobs.submit(
            [Submission(operation="echo", payload="{}", client="c", queue="default")] * (LIMIT + 50)
        )
    before = jobs(store)
    with unguarded(store.url, rich) as knife:
        knife.run(
            "UPDATE holdfast_jobs SET version = version + 3"
            " WHERE job_id IN (SELECT job_id FROM holdfast_calls WHERE client = 'c')"
        )
    assert check(store).more
    done = repair(store, operator="ann", reason="x", expected=plan(store).digest)
    assert (len(done.violations), len(done.acts), done.left) == (LIMIT + 50, LIMIT + 50, ())
    assert check(store).violations == ()
    assert jobs(store) == before


@pytest.mark.parametrize("operator, reason", [("", "why"), ("ann", " ")])
def test_a_repair_names_its_operator_and_its_reason(
    broken: tuple[Store[Any], Rich], operator: str, reason: str
) -> None:
    with pytest.raises(InputError):
        repair(broken[0], operator=operator, reason=reason, expected="")


def test_an_edited_state_is_restored_from_the_journal(broken: tuple[Store[Any], Rich]) -> None:
    store, rich = broken
    before = jobs(store)[rich.failed]
    corrupt(store.url, rich, "a_failed_job_called_pending")
    repair(store, operator="ann", reason="x", expected=plan(store).digest)
    after = jobs(store)[rich.failed]
    assert (after["state"], after["version"]) == ("failed", before["version"] + 1)
    with store.reading() as reading:
        last = reading.journal.of(rich.failed)[-1]
    assert (last.source, last.target, last.event) == ("pending", "failed", "repair")
    assert {row["maintenance_id"] for row in maintenance_rows(store)} == {last.maintenance_id}
    assert [row["event"] for row in maintenance_rows(store)][::3] == ["open", "shut"]
    assert "delete" in {row["event"] for row in maintenance_rows(store)}  # the row is written whole


# ---------------------------------------------------------------------------------------------------------------------
# Several at once


def plant(url: str, rich: Rich, names: list[str]) -> dict[str, Found]:
    """Plant corruptions one after the other; return what is to be found of those that left something behind."""
    planted: dict[str, Found] = {}
    afterwards = []
    with unguarded(url, rich) as knife:
        for name in names:
            knife.after, keep_counts = [], knife.keep_counts
            try:
                with knife.client.savepoint():
                    found = CORRUPTIONS[name](knife)
            except (AssertionError, ValueError, LookupError, TypeError, sqlite3.Error, psycopg.Error):
                knife.keep_counts = keep_counts
            else:
                knife.keep_counts = keep_counts and knife.keep_counts
                afterwards += knife.after
                planted[name] = found
        knife.after = afterwards
    return planted


PROVING = os.environ.get("HOLDFAST_HYPOTHESIS") == "prove"  # then every run draws anew
DRAWS = st.lists(st.sampled_from(sorted(CORRUPTIONS)), min_size=2, max_size=4, unique=True)


@pytest.mark.slow
@settings(max_examples=200)
@given(names=DRAWS)
def test_two_hundred_draws_are_found_and_repaired_on_sqlite(rich_clock: VirtualClock, names: list[str]) -> None:
    on_a_copy(rich_clock, names)


@settings(max_examples=60 if PROVING else 12, derandomize=not PROVING)
@given(names=DRAWS)
def test_corruptions_together_are_found_and_repaired_on_sqlite(rich_clock: VirtualClock, names: list[str]) -> None:
    """Whatever comes together: found, repaired or quarantined, never a crash, never a wrong repair."""
    on_a_copy(rich_clock, names)


def on_a_copy(rich_clock: VirtualClock, names: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=tmpfs_directory()) as directory:
        url = f"sqlite:///{directory}/ledger.db"
        repaired_together(url, RICH.to_file(url), rich_clock, names)


@settings(max_examples=6 if PROVING else 3, derandomize=not PROVING)
@given(names=DRAWS)
def test_corruptions_together_are_found_and_repaired_on_postgres(
    pg_server: Server, rich_clock: VirtualClock, names: list[str]
) -> None:
    with RICH.on(pg_server, "tests/audit/test_repair.py") as (url, rich):
        repaired_together(url, rich, rich_clock, names)


def subjects(found: Iterable[tuple[str, str]]) -> set[str]:
    """The subjects of violations: all counts are one, and all seals, as another corruption says which of them is wrong.

    An execution counts as its job: another corruption may have given it another number.
    """
    alike = {invariant: invariant for invariant in ("counts_true", "seals_chained")}
    return {alike.get(invariant, _job_of(subject)) for invariant, subject in found}


def _job_of(subject: str) -> str:
    machine, _, number = subject.partition(" ")
    return f"JOB {int(number) // EXEC_IDS}" if machine == "EXECUTION" else subject


def repaired_together(url: str, rich: Rich, clock: VirtualClock, names: list[str]) -> None:
    # The key of another job is free once that job is gone: no violation is left.
    assume(not {"a_job_that_is_gone", "a_key_twice"} <= set(names))
    # A history may be cut by maintenance, and maintenance that was opened later looks the same.
    assume(not {"a_history_cut_by_hand", "a_door_that_stands_open"} <= set(names))
    with connect(url, clock) as store:
        before = jobs(store)
        planted = plant(url, rich, names)
        # Compared by subject: a row that cannot be read, or belongs to no record, has no more than that.
        found = subjects((violation.invariant, violation.subject) for violation in check(store).violations)
        assert [name for name, to_find in planted.items() if not found & subjects(to_find)] == []
        if "an_environment_that_is_none" in planted and plan(store).acts:
            untouched = contents(store)
            with pytest.raises(AuthorityError):  # the environment is unknown, so it counts as prod: no own grant there
                repair(store, operator="ann", reason="x", expected=plan(store).digest)
            assert contents(store) == untouched
            return
        mended(store, before)
