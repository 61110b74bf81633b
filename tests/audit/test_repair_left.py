"""Damage that cannot be repaired stays and is named; everything else is repaired."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.audit.check.runner import check
from holdfast.audit.repair.repair import RepairReport, plan, repair
from holdfast.core.authority import Act
from holdfast.core.errors import StoreDamagedError
from holdfast.governance.grants import permission
from holdfast.store import Store, connect
from holdfast.testing import VirtualClock
from tests.audit.knife import Knife, unguarded
from tests.audit.rich import Rich

Edit = Callable[[Knife], None]
RECORDS = {"holdfast_calls": "job_id", "holdfast_jobs": "job_id", "holdfast_aborted": "job_id",
           "holdfast_grants": "grant_id", "holdfast_procedures": "run_id",
           "holdfast_checkpoints": "job_id"}  # fmt: skip
MAX = (1 << 63) - 1
VERSION_MAX = (1 << 31) - 1


@pytest.fixture
def broken(rich_ledger: tuple[str, Rich], rich_clock: VirtualClock) -> Iterator[tuple[Store[Any], Rich]]:
    """The store of a rich ledger of each kind in turn, to be broken."""
    url, rich = rich_ledger
    with connect(url, rich_clock) as store:
        yield store, rich


@pytest.fixture
def broken_sqlite(rich_sqlite: tuple[str, Rich], rich_clock: VirtualClock) -> Iterator[tuple[Store[Any], Rich]]:
    """The store of a rich ledger on SQLite, which keeps times as text, and numbers what it journals by itself."""
    url, rich = rich_sqlite
    with connect(url, rich_clock) as store:
        yield store, rich


def edit(store: Store[Any], rich: Rich, *edits: Edit, keep_counts: bool = True) -> None:
    with unguarded(store.url, rich) as knife:
        knife.keep_counts = keep_counts
        for one in edits:
            one(knife)


def records(store: Store[Any]) -> dict[str, list[dict[str, Any]]]:
    """All rows of the ledger except the journal."""
    with store.reading() as reading:
        found = {}
        for table, identity in RECORDS.items():
            ids = [subject for (subject,) in reading.execute(f"SELECT DISTINCT {identity} FROM {table} ORDER BY 1")]
            found[table] = [
                image for subject in ids for image in reading.maintenance.images(table, **{identity: subject})
            ]
        return found


def repaired(store: Store[Any]) -> RepairReport:
    """Repair as planned, and require that a plan changes nothing and that it reports all remaining violations."""
    before = records(store)
    planned = plan(store)
    assert records(store) == before
    permit = permission(Act.REPAIR, "ledger", executor="ann", reason="x", plan=planned.digest)
    done = repair(store, operator="ann", reason="x", expected=planned.digest, permit=permit)
    assert (done.left, done.given_up) == (planned.left, planned.given_up)
    assert check(store).violations == done.left
    return done


def acts(done: RepairReport) -> list[tuple[str, str]]:
    return [(act.kind, act.subject) for act in done.acts]


def left(done: RepairReport) -> set[tuple[str, str]]:
    return {(violation.invariant, violation.subject) for violation in done.left}


def newest_row(knife: Knife, machine: str, subject: int) -> int:
    [[seq]] = knife.run("SELECT max(seq) FROM holdfast_journal WHERE machine = ? AND subject = ?", machine, subject)
    return int(seq)


# ---------------------------------------------------------------------------------------------------------------------
# Restored from the journal


def another_attempt(knife: Knife) -> None:
    knife.set_aborted(knife.executions(knife.rich.failed)[0], attempt=77)


def another_job_id(knife: Knife) -> None:
    knife.set("JOB", knife.rich.failed, job_id=5555)


def another_job_id_while_it_runs(knife: Knife) -> None:
    knife.set("JOB", knife.rich.running, job_id=5555)


def another_grant_id(knife: Knife) -> None:
    knife.set("GRANT", knife.rich.draft_grant, grant_id=5555)


def of_job_0(knife: Knife) -> None:
    knife.set_aborted(knife.executions(knife.rich.failed)[0], job_id=0)


def of_a_job_that_never_was(knife: Knife) -> None:
    knife.set_aborted(knife.executions(knife.rich.failed)[0], job_id=7777)


def of_another_job(knife: Knife) -> None:
    """Give an attempt of a job that succeeded in the end to a job that has failed."""
    knife.set_aborted(knife.executions(knife.rich.done_late)[2], job_id=knife.rich.failed)


@pytest.mark.req("G-22")
@pytest.mark.parametrize(
    "spoil",
    [
        another_attempt,
        another_job_id,
        another_job_id_while_it_runs,
        another_grant_id,
        of_job_0,
        of_a_job_that_never_was,
        of_another_job,
    ],
)
def test_columns_are_restored_from_the_journal(broken: tuple[Store[Any], Rich], spoil: Edit) -> None:
    store, rich = broken
    before = records(store)
    edit(store, rich, spoil)
    assert check(store).violations
    done = repaired(store)
    assert ([act.kind for act in done.acts], done.left) == (["mend"], ())
    after = records(store)
    grants = after.pop("holdfast_grants")
    assert grants[: len(before["holdfast_grants"])] == before.pop("holdfast_grants")  # and the one for the repair
    assert after == before


@pytest.mark.parametrize("column", ["finished_at", "created_at", "started_at"])
def test_a_time_without_its_zone_is_taken_from_the_journal(broken_sqlite: tuple[Store[Any], Rich], column: str) -> None:
    store, rich = broken_sqlite
    before = records(store)["holdfast_aborted"]

    def without_zone(knife: Knife) -> None:
        [[value]] = knife.run(f"SELECT {column} FROM holdfast_aborted WHERE job_id = ?", rich.failed)
        knife.set_aborted(knife.executions(rich.failed)[0], **{column: str(value).removesuffix("Z")})

    edit(store, rich, without_zone)
    done = repaired(store)
    assert ([act.kind for act in done.acts], done.left) == (["mend"], ())
    assert records(store)["holdfast_aborted"] == before


@pytest.mark.parametrize("column", ["started_at", "last_attempt_at"])
def test_a_time_of_the_current_attempt_is_taken_from_the_journal(
    broken_sqlite: tuple[Store[Any], Rich], column: str
) -> None:
    store, rich = broken_sqlite
    before = records(store)["holdfast_jobs"]

    def without_zone(knife: Knife) -> None:
        knife.set("JOB", rich.done, **{column: str(knife.get("JOB", rich.done, column)).removesuffix("Z")})

    edit(store, rich, without_zone)
    done = repaired(store)
    assert ([act.kind for act in done.acts], done.left) == (["mend"], ())
    assert records(store)["holdfast_jobs"] == before


def test_a_request_to_cancel_without_a_valid_time_is_removed(broken_sqlite: tuple[Store[Any], Rich]) -> None:
    store, rich = broken_sqlite
    before = records(store)["holdfast_jobs"]
    edit(store, rich, lambda knife: knife.set("JOB", rich.running, cancel_requested_at="soon"))
    assert ([act.kind for act in repaired(store).acts], check(store).violations) == (["mend"], ())
    assert records(store)["holdfast_jobs"] == before


# ---------------------------------------------------------------------------------------------------------------------
# Quarantined, because the journal does not know


def a_version_without_a_next(knife: Knife) -> None:
    knife.set_row(newest_row(knife, "JOB", knife.rich.failed), version=VERSION_MAX)


def a_row_of_an_unknown_subject(knife: Knife) -> None:
    knife.set_row(newest_row(knife, "JOB", knife.rich.failed), subject=-1)


@pytest.mark.parametrize("spoil", [a_version_without_a_next, a_row_of_an_unknown_subject])
def test_an_impossible_journal_row_is_dropped_and_its_job_quarantined(
    broken: tuple[Store[Any], Rich], spoil: Edit
) -> None:
    store, rich = broken
    edit(store, rich, spoil)
    done = repaired(store)
    assert (done.acts[0].kind, done.left) == ("forget", ())
    with store.reading() as reading:
        [job] = reading.maintenance.images("holdfast_jobs", job_id=rich.failed)
    assert (job["state"], job["quarantine_code"]) == ("quarantined", "integrity")


def without_its_claim(knife: Knife) -> None:
    knife.run("DELETE FROM holdfast_journal WHERE seq = ?", knife.row("JOB", knife.rich.committed, "claim"))


def with_another_payload(knife: Knife) -> None:
    knife.set("JOB", knife.rich.committed, payload='{"of":"somebody else"}')


@pytest.mark.parametrize("spoil", [without_its_claim, with_another_payload])
def test_a_committed_job_is_finished_whatever_else_is_damaged(broken: tuple[Store[Any], Rich], spoil: Edit) -> None:
    store, rich = broken
    edit(store, rich, spoil)
    done = repaired(store)
    assert done.left == ()
    with store.reading() as reading:
        [job] = reading.maintenance.images("holdfast_jobs", job_id=rich.committed)
    assert (job["state"], job["status"]) == ("succeeded", "DONE")


# ---------------------------------------------------------------------------------------------------------------------
# Left, because it can be neither restored nor quarantined


def a_grant_that_never_was(knife: Knife) -> None:
    knife.forge("GRANT", knife.rich.draft_grant, subject=999, version=1, source=None, target="draft", event="request")


def a_run_that_is_gone(knife: Knife) -> None:
    knife.run("DELETE FROM holdfast_procedures WHERE run_id = ?", knife.rich.run)


def a_grant_that_is_gone(knife: Knife) -> None:
    knife.run("DELETE FROM holdfast_grants WHERE grant_id = ?", knife.rich.draft_grant)


@pytest.mark.req("G-22")
@pytest.mark.parametrize(
    "spoil, machine, subject",
    [
        (a_grant_that_never_was, "GRANT", lambda _: 999),
        (a_run_that_is_gone, "PROCEDURE", lambda rich: rich.run),
        (a_grant_that_is_gone, "GRANT", lambda rich: rich.draft_grant),
    ],
)
def test_damage_that_cannot_be_repaired_does_not_stop_other_repairs(
    broken: tuple[Store[Any], Rich], spoil: Edit, machine: str, subject: Callable[[Rich], int]
) -> None:
    store, rich = broken

    def more(knife: Knife) -> None:
        knife.set("JOB", rich.failed, attempts=9)
        knife.run("INSERT INTO holdfast_counts (operation, queue, state, n) VALUES ('ghost', 'q', 'pending', 3)")

    edit(store, rich, spoil, more, keep_counts=False)
    done = repaired(store)
    assert {("mend", f"JOB {rich.failed}"), ("recount", "COUNTS")} <= set(acts(done))
    name = f"{machine} {subject(rich)}"
    assert ("no_orphans", name) in left(done)
    assert not left(done) & {("attempts_monotonic", f"JOB {rich.failed}"), ("counts_true", "COUNTS ghost/q/pending")}
    [given_up] = done.given_up
    table = {"GRANT": "holdfast_grants", "PROCEDURE": "holdfast_procedures"}[machine]
    assert given_up.subject == name
    assert re.findall(r"holdfast_\w+", given_up.restore) == [table, "holdfast_journal"]
    assert "no_orphans" in given_up.why
    assert acts(repaired(store)) == []  # a second repair leaves it too, and opens no maintenance


def test_attempts_that_changed_places_are_put_right(broken: tuple[Store[Any], Rich]) -> None:
    store, rich = broken
    before = records(store)["holdfast_aborted"]

    def swapped(knife: Knife) -> None:
        first, second = knife.executions(rich.done_late)[:2]
        knife.set_aborted(first, attempt=500)
        knife.set_aborted(second, attempt=1)
        knife.set_aborted(first + 499, attempt=2)

    edit(store, rich, swapped)
    done = repaired(store)
    assert ([act.kind for act in done.acts], done.left) == (["mend", "mend"], ())
    assert records(store)["holdfast_aborted"] == before


def test_a_lost_lease_that_was_excused_is_excused_again(broken: tuple[Store[Any], Rich]) -> None:
    store, rich = broken
    before = records(store)
    lost = [
        row["attempt"]
        for row in before["holdfast_aborted"]
        if row["job_id"] == rich.done_late and row["event"] == "expire"
    ]
    assert lost
    edit(store, rich, lambda knife: knife.set_aborted(knife.executions(rich.done_late)[lost[0] - 1], excused=False))
    done = repaired(store)
    assert ([act.kind for act in done.acts], done.left) == (["mend"], ())
    after = records(store)
    assert after["holdfast_aborted"] == before["holdfast_aborted"]
    assert after["holdfast_jobs"] == before["holdfast_jobs"]


def test_a_lost_lease_from_before_losses_were_counted_stays_unexcused(broken: tuple[Store[Any], Rich]) -> None:
    """As in a ledger that was made before jobs counted their lost leases."""
    store, rich = broken

    rows = [row for row in records(store)["holdfast_aborted"] if row["job_id"] == rich.done_late]
    losses = [row["attempt"] for row in rows if row["event"] == "expire"]
    excused = sum(bool(row["excused"]) for row in rows if row["attempt"] not in losses)
    assert losses

    def uncounted(knife: Knife) -> None:
        knife.set("JOB", rich.done_late, lost=None, excused=excused, last_error_code="lease_expired")
        for attempt in losses:
            knife.set_aborted(knife.executions(rich.done_late)[attempt - 1], excused=False)

    edit(store, rich, uncounted)
    assert check(store).violations == ()
    before = records(store)
    edit(store, rich, lambda knife: knife.set_aborted(knife.executions(rich.done_late)[0], version=7))
    done = repaired(store)
    assert ([act.kind for act in done.acts], done.left) == (["mend"], ())
    assert records(store)["holdfast_aborted"] == before["holdfast_aborted"]
    assert records(store)["holdfast_jobs"] == before["holdfast_jobs"]


def test_a_record_is_repaired_completely_or_not_at_all(broken: tuple[Store[Any], Rich]) -> None:
    """A job that counts more attempts than a job can have, and no journal that knows better."""
    store, rich = broken

    def beyond(knife: Knife) -> None:
        knife.run("DELETE FROM holdfast_journal WHERE seq = ?", knife.row("JOB", rich.poisoned, "claim"))
        knife.set("JOB", rich.poisoned, attempts=1_000_000)
        knife.set_aborted(knife.executions(rich.poisoned)[0], version=7)  # which a repair could fix if it were alone
        knife.set("JOB", rich.failed, attempts=9)

    edit(store, rich, beyond)
    spoilt = records(store)
    done = repaired(store)
    assert acts(done) == [("mend", f"JOB {rich.failed}")]
    lost = f"JOB {rich.poisoned}"
    assert lost in {violation.subject for violation in done.left}
    [given_up] = done.given_up
    assert given_up.subject == lost
    assert "check" in given_up.why.lower()  # the words of the database
    tables = ["holdfast_calls", "holdfast_jobs", "holdfast_aborted", "holdfast_journal"]
    assert re.findall(r"holdfast_\w+", given_up.restore) == tables
    after = records(store)
    assert after["holdfast_aborted"] == spoilt["holdfast_aborted"]
    assert [job for job in after["holdfast_jobs"] if job["job_id"] == rich.poisoned] == [
        job for job in spoilt["holdfast_jobs"] if job["job_id"] == rich.poisoned
    ]


def test_a_journal_without_a_free_number_is_reported_as_damaged(broken_sqlite: tuple[Store[Any], Rich]) -> None:
    store, rich = broken_sqlite
    edit(store, rich, lambda knife: knife.set_row(newest_row(knife, "JOB", rich.failed), seq=MAX))
    before = records(store)
    with pytest.raises(StoreDamagedError) as refused:
        plan(store)
    assert refused.value.context == {"table": "holdfast_journal", "seq": MAX}
    assert records(store) == before
