"""The failure modes of the sources after FM_001: each is shown without its guard, prevented with it, and repaired.

A test that is called `..._without_...` shows what goes wrong in a program that does not use the guard.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Execution, Ledger, Quarantine, RetryAfter, RetryPolicy, Snooze, Strategy
from holdfast.audit.check.runner import check
from holdfast.audit.repair.repair import plan, repair
from holdfast.core.authority import Act
from holdfast.core.errors import (
    IdempotencyConflictError,
    InputError,
    InvalidStateTransitionError,
    QueueFullError,
    RefusedError,
)
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.worker.no_progress import NO_PROGRESS, signature
from holdfast.governance.grants import permission
from holdfast.governance.releases import release
from holdfast.nodd.notices import wal_id
from holdfast.store import Transaction, connect
from holdfast.store.effects import staged
from holdfast.store.reinstall import rewrite_enforcement
from holdfast.store.verbs import gate
from holdfast.testing import VirtualClock, crash_at, drain, virtual_world
from tests.audit.knife import drop_triggers
from tests.enforcement.raw import Client
from tests.engine.database import Database

pytestmark = pytest.mark.attack("faults")

LEASE_S = 30.0
EFFECT = "INSERT INTO effects (job_id, part) VALUES (:job_id, :part)"
PARTS = ("debit", "credit")
MANY = 10
IMMEDIATE = RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=10)


@pytest.fixture
def effects(ledger: Ledger, database: Database) -> Callable[[], Counter[str]]:
    """A table of effects in which nothing is unique, and how often each part happened."""
    with ledger.store.transaction() as transaction:
        transaction.execute("CREATE TABLE effects (job_id BIGINT NOT NULL, part TEXT NOT NULL)")
    return lambda: Counter(part for (part,) in database.run("SELECT part FROM effects"))


# ---------------------------------------------------------------------------------------------------------------------
# FM_002: a torn write (INV_002, INV_004)


def transfer(ledger: Ledger, *, guarded: bool) -> None:
    """Declare an operation with two effects, which are written together with its end, or each by itself."""

    @ledger.operation("transfer", lease_s=LEASE_S, retry=IMMEDIATE)
    def _transfer(run: Execution) -> None:
        for part in PARTS:
            values = {"job_id": run.job.job_id, "part": part}
            if guarded:
                run.effect(EFFECT, values, rows=1)
            else:
                apart = [staged(EFFECT, values, 1)]
                with ledger.store.transaction() as transaction:
                    transaction.apply([apart])


@pytest.mark.req("M-20", "M-12", "M-11")
def test_fm_002_without_one_transaction_a_crash_leaves_a_part_that_happens_again(
    ledger: Ledger, clock: VirtualClock, effects: Callable[[], Counter[str]]
) -> None:
    transfer(ledger, guarded=False)
    receipt = ledger.submit("transfer", {})
    with crash_at("before_commit"):
        drain(ledger)
    assert effects() == {"debit": 1, "credit": 1}
    assert ledger.job(receipt.job_id).state is JobState.RUNNING  # and yet it is not done
    clock.advance(LEASE_S)
    assert drain(ledger) == 1
    assert effects() == {"debit": 2, "credit": 2}


@pytest.mark.req("M-20", "M-12", "M-11", "X-04")
@pytest.mark.parametrize("point, there", [("before_commit", 0), ("after_commit", 1), ("after_commit_before_done", 1)])
def test_fm_002_a_crash_leaves_all_of_a_write_or_nothing_and_recovery_ends_it_once(
    ledger: Ledger, clock: VirtualClock, effects: Callable[[], Counter[str]], point: str, there: int
) -> None:
    transfer(ledger, guarded=True)
    receipt = ledger.submit("transfer", {})
    with crash_at(point):
        drain(ledger)
    assert effects() == (dict.fromkeys(PARTS, 1) if there else {})
    clock.advance(LEASE_S)
    assert drain(ledger) == 1 - there
    assert effects() == dict.fromkeys(PARTS, 1)
    assert ledger.job(receipt.job_id).state is JobState.SUCCEEDED


# ---------------------------------------------------------------------------------------------------------------------
# FM_003: a storm of retries (INV_004, INV_005)


class Dependency:
    """A service that is down, and counts how often it is called."""

    def __init__(self) -> None:
        self.calls = 0

    def call(self) -> None:
        self.calls += 1
        raise ConnectionError("refused")


@pytest.mark.req("M-20", "M-12", "M-11")
def test_fm_003_without_a_key_each_restart_has_a_new_budget_and_starts_the_storm_again(
    ledger_url: str, clock: VirtualClock
) -> None:
    dependency = Dependency()
    for seed in range(10):
        with Ledger(ledger_url, world=virtual_world(clock, seed=seed)) as ledger:
            ledger.operation("sync", lease_s=LEASE_S, retry=RetryPolicy(max_attempts=3))(_failing(dependency))
            ledger.submit("sync", {})
            drain(ledger, until=clock.after(3600))
    assert dependency.calls == 30


@pytest.mark.req("M-20", "M-12", "M-11", "M-13")
def test_fm_003_the_budget_outlives_restarts_the_delays_grow_and_a_spent_job_is_seen(
    ledger_url: str, clock: VirtualClock
) -> None:
    dependency = Dependency()
    called_at: list[float] = []
    ids: set[int] = set()
    for seed in range(10):  # ten processes one after the other, an hour each
        with Ledger(ledger_url, world=virtual_world(clock, seed=seed)) as ledger:

            @ledger.operation("sync", lease_s=LEASE_S, retry=RetryPolicy(max_attempts=3, jitter=0), replay_attempts=1)
            def sync(_run: Execution) -> None:
                called_at.append(clock.monotonic())
                dependency.call()

            ids.add(ledger.submit(sync.call().keyed("cron", "once")).job_id)
            drain(ledger, until=clock.after(3600))
    assert dependency.calls == 3
    assert [later - earlier for earlier, later in pairwise(called_at)] == [60, 120]
    with Ledger(ledger_url, world=virtual_world(clock)) as ledger:
        [job] = map(ledger.job, ids)
        assert (job.state, job.last_error_code) == (JobState.FAILED, "connection_error")  # it rests, and is listed
        # Recovery: an operator puts it back, within the whole budget and no further.
        ledger.operation("sync", lease_s=LEASE_S, retry=RetryPolicy(max_attempts=3, jitter=0))(_failing(dependency))
        ledger.retry(job.job_id, reason="the service is back")
        drain(ledger)
        assert ledger.job(job.job_id).state is JobState.QUARANTINED
        with pytest.raises(InvalidStateTransitionError):
            ledger.retry(job.job_id, reason="again")
    assert dependency.calls == 4


def _failing(dependency: Dependency) -> Callable[..., None]:
    def sync(_run: Execution) -> None:
        dependency.call()

    return sync


# ---------------------------------------------------------------------------------------------------------------------
# FM_005: state that a remote side lets grow without a bound (INV_006)

PAGES = 7
SENT = 1 << 20  # with its quotes it is above the limit


def next_page(cursor: int) -> int:
    """Return the next cursor of a remote list whose last page leads to its first."""
    return (cursor + 1) % PAGES


def crawl(ledger: Ledger, *, keyed: bool) -> list[int]:
    """Declare an operation that follows the cursors, submit the first page, and return the list of those it saw."""
    seen: list[int] = []

    @ledger.operation("page", lease_s=LEASE_S)
    def page(run: Execution, cursor: int) -> None:
        seen.append(cursor)
        after = page.call(cursor=next_page(cursor))
        if len(seen) < MANY * PAGES:  # without keys nothing else ends it
            run.after_commit(after.keyed("crawl", str(next_page(cursor))) if keyed else after)

    first = page.call(cursor=0)
    ledger.submit(first.keyed("crawl", "0") if keyed else first)
    return seen


def states(ledger: Ledger) -> list[JobState]:
    with ledger.store.reading() as reading:
        return [job.state for job in reading.lists.jobs(limit=1000)]


@pytest.mark.req("M-20", "M-12", "M-11")
def test_fm_005_without_a_key_a_remote_list_that_leads_in_a_circle_grows_the_state_for_ever(
    ledger: Ledger, clock: VirtualClock
) -> None:
    seen = crawl(ledger, keyed=False)
    drain(ledger, until=clock.after(3600))
    assert (len(seen), states(ledger)) == (MANY * PAGES, [JobState.SUCCEEDED] * MANY * PAGES)


@pytest.mark.req("M-20", "M-12", "M-11")
def test_fm_005_a_page_is_a_job_with_a_key_so_a_circle_ends(ledger: Ledger, clock: VirtualClock) -> None:
    seen = crawl(ledger, keyed=True)
    drain(ledger, until=clock.after(3600))
    assert seen == list(range(PAGES))
    assert states(ledger) == [JobState.SUCCEEDED] * PAGES


@pytest.mark.req("M-20", "M-12", "M-11")
def test_fm_005_without_the_limit_of_a_page_any_size_is_kept(ledger_url: str, clock: VirtualClock) -> None:
    with Ledger(ledger_url, payload_bytes_max=100 * SENT, world=virtual_world(clock)) as ledger:
        job_id = ledger.submit("noop", {"page": "x" * 4 * SENT}).job_id
        assert len(ledger.job(job_id).payload or "") > 4 * SENT


@pytest.mark.req("M-20", "M-12", "M-11")
@pytest.mark.parametrize("kept", ["result", "checkpoint", "payload"])
def test_fm_005_what_a_remote_side_sends_is_kept_up_to_a_limit_and_beyond_it_the_job_is_quarantined(
    ledger: Ledger, database: Database, kept: str
) -> None:
    sent = ["x" * SENT]

    @ledger.operation("fetch", lease_s=LEASE_S, retry=RetryPolicy(max_attempts=1))
    def fetch(run: Execution, cursor: str = "") -> object:
        if kept == "checkpoint":
            run.checkpoint("pages", lambda: sent[0])
        if kept == "payload" and not cursor:
            run.after_commit(fetch.call(cursor=sent[0]))
        return sent[0] if kept == "result" else cursor

    receipt = ledger.submit(fetch.call())
    drain(ledger)
    job = ledger.job(receipt.job_id)
    assert (job.state, job.last_error_code) == (JobState.QUARANTINED, "payload_too_large")
    assert database.run("SELECT count(*) FROM holdfast_calls") == [(1,)]
    assert database.run("SELECT count(*) FROM holdfast_checkpoints") == [(0,)]
    sent[0] = "s3://bucket/pages/1"  # the recovery: the data is kept elsewhere, and the job is released
    release(ledger, receipt.job_id, operator="ann", reason="the handler keeps the address")
    drain(ledger)
    assert ledger.job(receipt.job_id).state is JobState.SUCCEEDED


# ---------------------------------------------------------------------------------------------------------------------
# FM_006: a quota that is off by one (INV_007)


@pytest.mark.req("M-20", "M-12", "M-11")
def test_fm_006_without_the_inclusive_bound_one_more_gets_in(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    real = gate._refuse_beyond

    def one_too_many(transaction: Transaction, wanted: Mapping[str, int], limited: Mapping[str, int]) -> None:
        real(transaction, wanted, {queue: n + 1 for queue, n in limited.items()})

    monkeypatch.setattr(gate, "_refuse_beyond", one_too_many)
    ledger.limit("default", 3)
    for _ in range(4):
        assert ledger.submit("noop", {}).is_new


@pytest.mark.req("M-20", "M-12", "M-11")
@pytest.mark.parametrize("most", [0, 1, 3])
def test_fm_006_a_queue_takes_exactly_its_limit(ledger: Ledger, most: int) -> None:
    ledger.limit("default", most)
    for _ in range(most):
        assert ledger.submit("noop", {}).is_new
    with pytest.raises(QueueFullError) as caught:
        ledger.submit("noop", {})
    assert (caught.value.context["depth"], caught.value.context["limit"]) == (most, most)
    # Recovery: with one done there is room for exactly one.
    if most:
        drain(ledger)
        ledger.submit_many([{"operation": "noop"}] * most)
        with pytest.raises(QueueFullError):
            ledger.submit("noop", {})


@pytest.mark.req("M-20", "M-12", "M-11", "X-06")
def test_fm_006_without_the_inclusive_bound_of_attempts_one_more_is_made_and_with_it_exactly_the_budget(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    @ledger.operation("flaky", lease_s=LEASE_S, retry=RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=3))
    def flaky(run: Execution) -> None:
        made.append(run.attempt)
        raise RetryAfter(0, "not now")

    ledger.submit(flaky.call())
    drain(ledger)
    assert made == [1, 2, 3]
    made.clear()
    monkeypatch.setattr(Job, "may_retry", property(lambda job: job.spent <= job.max_attempts))
    ledger.submit(flaky.call())
    drain(ledger)
    assert made == [1, 2, 3, 4]


# ---------------------------------------------------------------------------------------------------------------------
# FM_007: identities that are not one to one (INV_008)

PAIRS = [("ab", "c"), ("a", "bc")]


@pytest.mark.req("M-20", "M-12", "M-11")
def test_fm_007_without_a_pair_two_identities_become_one_job(ledger: Ledger) -> None:
    receipts = [ledger.submit("noop", {}, client="all", key=f"{client}{key}") for client, key in PAIRS]
    assert len({receipt.job_id for receipt in receipts}) == 1  # the work of the second is never done


@pytest.mark.req("M-20", "M-12", "M-11")
def test_fm_007_a_pair_is_one_job_and_a_job_is_one_pair(ledger: Ledger) -> None:
    first = {pair: ledger.submit("noop", {}, client=pair[0], key=pair[1]).job_id for pair in PAIRS}
    again = {pair: ledger.submit("noop", {}, client=pair[0], key=pair[1]).job_id for pair in PAIRS}
    assert first == again
    assert len(set(first.values())) == len(PAIRS)
    for (client, key), job_id in first.items():
        job = ledger.job(job_id)
        assert (job.client, job.key) == (client, key)
    # Other work under the same identity is an error that is seen, never a silent merge.
    with pytest.raises(IdempotencyConflictError):
        ledger.submit("noop", {"other": 1}, client=PAIRS[0][0], key=PAIRS[0][1])


_datasets = st.sampled_from(["goes-abi", "nexrad-l2", "hrrr"])
_uris = st.text(alphabet="ab|/", min_size=1, max_size=6).map(lambda path: f"s3://bucket/{path}")
_times = st.sampled_from(["2026-11-16T00:00:00Z", "2026-11-16T00:05:00Z"])
_identities = st.tuples(_datasets, _uris, _times)


@pytest.mark.req("M-20", "M-11", "K-02")
@given(_identities, _identities)
def test_fm_007_records_have_one_id_for_one_identity(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """The URI may have the separator in it: dataset and time have none, so that the parts can be separated."""
    assert (wal_id(*one) == wal_id(*other)) is (one == other)


# ---------------------------------------------------------------------------------------------------------------------
# FM_009: no progress (INV_002, INV_005)


def attempts(ledger: Ledger, errors: Sequence[Exception], policy: RetryPolicy) -> tuple[int, Job]:
    """Run a job whose attempts raise these errors in turn, the last one again and again; return how many were made."""
    made: list[int] = []

    @ledger.operation("stuck", lease_s=LEASE_S, retry=policy)
    def stuck(run: Execution) -> None:
        made.append(run.attempt)
        raise errors[min(len(made), len(errors)) - 1]

    receipt = ledger.submit(stuck.call())
    clock: Any = ledger.world.clock
    drain(ledger, until=clock.after(3600))
    return len(made), ledger.job(receipt.job_id)


def stopping(after: int | None, most: int = MANY) -> RetryPolicy:
    return RetryPolicy(strategy=Strategy.IMMEDIATE, max_attempts=most, no_progress_after=after)


@pytest.mark.req("M-20", "M-12", "M-11")
def test_fm_009_without_the_guard_the_same_failure_spends_the_whole_budget(ledger: Ledger) -> None:
    made, job = attempts(ledger, [ValueError("order 7 has no lines")], stopping(None))
    assert made == MANY
    assert job.state is JobState.FAILED


@pytest.mark.req("M-20", "M-12", "M-11")
@pytest.mark.parametrize("after", [2, 3, 5])
def test_fm_009_after_k_failures_with_the_same_signature_a_job_is_quarantined(ledger: Ledger, after: int) -> None:
    """The messages differ in numbers only, as with ids, addresses and times."""
    errors = [ValueError(f"no answer from 10.0.0.{n} after {n}.5 s (id 5f3a-{n})") for n in range(MANY)]
    made, job = attempts(ledger, errors, stopping(after))
    assert made == after
    assert (job.state, job.quarantine_code, job.last_error_code) == (JobState.QUARANTINED, NO_PROGRESS, "value_error")
    assert job.spent == after < job.max_attempts


@pytest.mark.req("M-20", "M-12", "M-11")
def test_fm_009_a_job_without_progress_is_released_and_quarantined_again_until_its_cause_is_corrected(
    ledger: Ledger,
) -> None:
    lines: list[str] = []

    @ledger.operation("order", lease_s=LEASE_S, retry=stopping(2))
    def order(run: Execution) -> str:
        return lines[0]

    job_id = ledger.submit(order.call()).job_id
    for attempts_made in (2, 3):  # released with its cause, one more attempt is made
        drain(ledger)
        job = ledger.job(job_id)
        assert (job.state, job.quarantine_code, job.attempts) == (JobState.QUARANTINED, NO_PROGRESS, attempts_made)
        release(ledger, job_id, operator="ann", reason="try again")
    lines.append("shipped")
    drain(ledger)
    assert (ledger.job(job_id).state, ledger.receipt(job_id).result) == (JobState.SUCCEEDED, "shipped")


@pytest.mark.req("M-20", "M-11")
@pytest.mark.parametrize(
    "errors, made",
    [
        # A failure that differs begins the count again.
        ([ValueError("a"), ValueError("a"), ValueError("b"), ValueError("b"), ValueError("b")], 5),
        ([ValueError("a"), KeyError("a"), ValueError("a"), KeyError("a"), ValueError("a"), ValueError("a")], 7),
        # What the handler schedules itself is a failure too; a snooze is none, and does not part two failures.
        ([RetryAfter(1, "busy")], 3),
        ([ValueError("a"), Snooze(1, "later"), ValueError("a"), ValueError("a")], 4),
    ],
)
def test_fm_009_only_failures_in_a_row_count(ledger: Ledger, errors: list[Exception], made: int) -> None:
    counted, job = attempts(ledger, errors, stopping(3))
    assert (counted, job.quarantine_code) == (made, NO_PROGRESS)


@pytest.mark.req("M-20", "M-11")
def test_fm_009_costs_nothing_where_it_is_not_declared(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> bool:
        raise AssertionError("the history was read")

    monkeypatch.setattr("holdfast.engine.worker.no_progress.makes_no_progress", never)
    made, _ = attempts(ledger, [ValueError("a")], stopping(None, most=3))
    assert made == 3


@pytest.mark.req("M-20")
@pytest.mark.parametrize("after", [0, 1, -1, 1001, "3", True])
def test_fm_009_a_count_that_makes_no_sense_is_refused(after: Any) -> None:
    with pytest.raises(InputError) as caught:
        stopping(after)
    assert caught.value.context["argument"] == "no_progress_after"


def test_a_signature_is_the_code_and_the_words_of_the_message() -> None:
    assert signature("io", "port 5432 at 0x7F3a") == signature("io", "port 1 at 0xdead")
    assert signature("io", "port 5432") != signature("io", "host 5432")
    assert signature("io", "x") != signature("os", "x")
    assert signature(None, None) == (None, "")


# ---------------------------------------------------------------------------------------------------------------------
# FM_008, INV_003, INV_005 and INV_009: an illegal move, by a client with access to the tables

FORGED = (
    "UPDATE holdfast_jobs SET state = 'pending', due_at = run_at, resting = NULL, status = NULL,"
    " quarantine_code = NULL, version = version + 1, move_id = 'forged' WHERE job_id = ?"
)


@pytest.fixture(params=["quarantined", "succeeded"])
def ended(request: pytest.FixtureRequest, ledger: Ledger) -> int:
    """A job that has ended: nothing may put it back without an approval."""

    @ledger.operation("judge", lease_s=LEASE_S)
    def judge(_run: Execution) -> None:
        if request.param == "quarantined":
            raise Quarantine("suspect")

    receipt = ledger.submit(judge.call())
    drain(ledger)
    assert ledger.job(receipt.job_id).state == request.param
    return receipt.job_id


@pytest.mark.req("M-11", "M-12")
def test_without_the_triggers_a_forged_move_succeeds_the_check_sees_it_and_repair_undoes_it(
    ledger: Ledger, ledger_url: str, ended: int
) -> None:
    state = ledger.job(ended).state
    client = Client(ledger_url)
    drop_triggers(client)
    assert client.changed(FORGED, ended) == 1
    client.commit()
    client.close()
    with connect(ledger_url) as store:
        with store.transaction() as transaction:
            rewrite_enforcement(store, transaction)
        found = {violation.id for violation in check(store).violations if violation.machine == "JOB"}
        assert found == {ended}
        digest = plan(store).digest
        permit = permission(Act.REPAIR, "ledger", executor="ann", reason="a forged move", plan=digest)
        repair(store, operator="ann", reason="a forged move", expected=digest, permit=permit)
        assert check(store).violations == ()
    assert ledger.job(ended).state is state


@pytest.mark.req("M-11", "M-12")
def test_with_the_triggers_a_forged_move_is_refused_by_the_database_and_leaves_no_trace(
    ledger: Ledger, ledger_url: str, ended: int
) -> None:
    before = ledger.job(ended)
    client = Client(ledger_url)
    with pytest.raises((sqlite3.Error, psycopg.Error)):
        client.changed(FORGED, ended)
    client.rollback()
    client.close()
    assert ledger.job(ended) == before
    # The ledger's own API refuses it too: the one who acts cannot approve.
    with pytest.raises(RefusedError):
        ledger.retry(ended, reason="let me")
    assert ledger.job(ended) == before
    with connect(ledger_url) as store:
        assert check(store).violations == ()
