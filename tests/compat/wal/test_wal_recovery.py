"""Recovery of the write-ahead log: oldest first, once each, despite crashes and poison entries."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from holdfast import Call, Cancel, Ledger, Quarantine, Snooze
from holdfast.compat import (
    Boundary,
    EntryStatus,
    InvalidStateTransitionError,
    Wal,
    WalEntry,
    WalRecoveringError,
    WalRecovery,
)
from holdfast.core.errors import StoreUnavailableError
from holdfast.core.machines import JobState
from holdfast.core.records import Attempt
from holdfast.store import Admission, Transaction
from holdfast.testing import FAULTS, Crash, VirtualClock, crash_at, virtual_world
from tests.compat.support import rows
from tests.compat.wal_support import append, apply, effects, make_storage, put, virtual_ledger

PENDING, COMPLETED, FAILED = EntryStatus
LEASE_S = 2.0


@pytest.fixture
def real(ledger_url: str) -> Iterator[Ledger]:
    """A ledger on the real clock."""
    with Ledger(ledger_url) as ledger:
        make_storage(ledger)
        yield ledger


def poison(entry: WalEntry, boundary: Boundary) -> object:
    """Carry out every entry but the second, which never works."""
    apply(entry, boundary)
    if entry.idempotency_key == 2:
        raise ValueError("it never works")
    return None


# ---------------------------------------------------------------------------------------------------------------------
# In order, and alone


@pytest.mark.req("W-05")
def test_recovery_replays_oldest_first_and_leaves_nothing_pending(wal: Wal, ledger_url: str) -> None:
    ids = [wal.append(client, op, b"x") for op in ("Update", "Create") for client in ("zoe", "alice", "bob")]
    wal.complete(ids[1])
    wal.fail(ids[4], "no")
    seen: list[int] = []

    def noting(entry: WalEntry, boundary: Boundary) -> int:
        assert [pending.id for pending in wal.pending_entries()] == [n for n in left if n not in seen]
        seen.append(entry.id)
        apply(entry, boundary)
        return entry.id * 10

    left = [ids[n] for n in (0, 2, 3, 5)]
    assert wal.recover(noting) == WalRecovery(completed=tuple(left))
    assert seen == left
    assert (wal.pending_entries(), wal.pending_count(), wal.recovering) == ([], 0, False)
    assert [wal.get(entry_id).result for entry_id in left] == [entry_id * 10 for entry_id in left]
    assert effects(ledger_url) == dict.fromkeys(left, 1)
    # It can be run again, and then there is nothing to do; normal work goes on.
    assert wal.recover(noting) == WalRecovery()
    assert wal.complete(wal.append("alice", "Create", b"")).status is COMPLETED


@pytest.mark.req("W-03", "W-05", "W-14")
def test_recovery_closes_its_log_to_every_process_and_no_other_log(
    wal: Wal, ledger: Ledger, ledger_url: str, clock: VirtualClock
) -> None:
    [first, second, third, fourth] = append(wal, 4)
    elsewhere = virtual_ledger(ledger_url, clock, seed=1)
    other, second_log = Wal(elsewhere), Wal(elsewhere, name="second")
    answers: list[object] = []

    def during(entry: WalEntry, boundary: Boundary) -> None:
        apply(entry, boundary)
        if entry.id != first:
            return
        assert wal.recovering
        gated: list[Callable[[], object]] = [
            lambda: wal.append("alice", "Create", b""),
            lambda: wal.append_with_idempotency("alice", 1, "Create", b"body 1"),
            wal.cleanup,
            lambda: wal.recover(apply),
        ]
        for refused in gated:
            with pytest.raises(WalRecoveringError) as caught:
                refused()
            assert (caught.value.code, caught.value.context) == ("wal_recovering", {"wal": "main"})
        there: list[Callable[[], object]] = [
            lambda: other.append("bob", "Create", b""),
            lambda: other.append_with_idempotency("alice", 1, "Create", b"body 1"),
            lambda: other.cleanup(0),
            lambda: other.recover(apply),
        ]
        until = clock.after(LEASE_S).isoformat()
        for refused in there:
            with pytest.raises(WalRecoveringError) as caught:
                refused()
            assert caught.value.context == {"wal": "main", "holder": wal.worker, "until": until}
        # The fleet submits, another log is open, and entries can be ended, here too.
        answers.append(ledger.submit("noop", {}).is_new)
        answers.append(second_log.append_with_idempotency("bob", 1, "Create", b"")[1])
        answers.append(second_log.cleanup(0))
        answers.append(wal.complete(third, "by hand", effects=[put(wal.get(third))]).status)
        answers.append(wal.fail(fourth, "by hand").status)
        answers.append(wal.complete(first, "by hand too", effects=[put(entry)]).status)

    report = wal.recover(during)
    assert answers == [True, True, 0, COMPLETED, FAILED, COMPLETED]
    assert report == WalRecovery(completed=(first, second, third), failed=(fourth,))
    assert effects(ledger_url) == {first: 1, second: 1, third: 1}
    assert [wal.get(first).result, wal.get(third).result] == ["by hand too", "by hand"]
    assert not wal.recovering
    assert wal.pending_entries() == []
    assert [entry.client for entry in second_log.pending_entries()] == ["bob"]
    assert other.append("bob", "Create", b"") > fourth  # its own refused recovery has not shut it
    elsewhere.close()


@pytest.mark.req("W-05")
def test_recovery_waits_for_an_append_that_is_under_way(real: Ledger) -> None:
    wal = Wal(real)
    append(wal, 1)
    inside, go = threading.Event(), threading.Event()
    submitted = real.submit_in

    def slow(transaction: Transaction, calls: Sequence[Call]) -> list[Admission]:
        inside.set()
        assert go.wait(30)
        return submitted(transaction, calls)

    real.submit_in = slow  # type: ignore[method-assign, assignment]
    with ThreadPoolExecutor(2) as threads:
        appending = threads.submit(wal.append, "alice", "Create", b"late")
        assert inside.wait(30)
        recovering = threads.submit(wal.recover, apply)
        while not wal.recovering:
            time.sleep(0.001)
        with pytest.raises(WalRecoveringError):
            wal.append("alice", "Create", b"too late")
        assert not recovering.done()
        go.set()
        late = appending.result(30)
        assert recovering.result(30).completed == (1, late)


# ---------------------------------------------------------------------------------------------------------------------
# Poison


@pytest.mark.req("W-14")
def test_a_poison_entry_ends_failed_and_does_not_block_others(ledger: Ledger, ledger_url: str) -> None:
    wal = Wal(ledger, max_attempts=3)
    [first, second, third] = append(wal, 3)
    assert wal.recover(poison) == WalRecovery(completed=(first, third), failed=(second,))
    bad = wal.get(second)
    assert (bad.status, bad.attempts, bad.error) == (FAILED, 3, "ValueError: it never works")
    assert effects(ledger_url) == {first: 1, third: 1}
    assert wal.pending_count() == 0
    [(code, state)] = rows(ledger_url, f"SELECT quarantine_code, state FROM holdfast_jobs WHERE job_id = {second}")
    assert (code, state) == ("value_error", "quarantined")


@pytest.mark.req("W-14")
def test_an_entry_whose_effects_cannot_be_stored_ends_failed(ledger: Ledger, ledger_url: str) -> None:
    wal = Wal(ledger, max_attempts=2)
    [first, second] = append(wal, 2)

    def unfit(entry: WalEntry, boundary: Boundary) -> object:
        apply(entry, boundary)
        if entry.id == first:
            boundary.effect("INSERT INTO storage (entry, who) VALUES (1, NULL)")
        return {1, 2} if entry.id == second else None  # nor can a set be stored

    assert wal.recover(unfit) == WalRecovery(failed=(first, second))
    assert [wal.get(entry_id).attempts for entry_id in (first, second)] == [2, 2]
    assert effects(ledger_url) == {}


@pytest.mark.req("W-14")
def test_an_entry_that_apply_rejects_ends_failed_after_one_attempt(wal: Wal) -> None:
    [first, second, third] = append(wal, 3)
    hopeless: dict[int, Exception] = {first: Quarantine("parse_error", "not JSON"), third: Cancel("not wanted")}

    def judging(entry: WalEntry, _boundary: Boundary) -> None:
        if entry.id in hopeless:
            raise hopeless[entry.id]

    assert wal.recover(judging) == WalRecovery(completed=(second,), failed=(first, third))
    assert [wal.get(entry_id).attempts for entry_id in (first, third)] == [1, 1]


@pytest.mark.req("W-14")
def test_an_entry_that_succeeds_after_failures_is_completed_once(wal: Wal, ledger_url: str) -> None:
    [entry_id] = append(wal, 1)
    tries = []

    def flaky(entry: WalEntry, boundary: Boundary) -> None:
        apply(entry, boundary)
        tries.append(entry.attempts)
        if len(tries) < 4:
            raise ConnectionError("not this time")

    assert wal.recover(flaky) == WalRecovery(completed=(entry_id,))
    assert tries == [1, 2, 3, 4]
    assert effects(ledger_url) == {entry_id: 1}


# ---------------------------------------------------------------------------------------------------------------------
# Interrupted


@pytest.mark.req("W-05", "W-14")
@pytest.mark.parametrize("interruption", [Snooze(60, "the target is down"), StoreUnavailableError("gone")])
def test_an_interruption_costs_an_entry_nothing_and_leaves_the_log_shut(
    ledger: Ledger, ledger_url: str, interruption: Exception
) -> None:
    wal = Wal(ledger, max_attempts=1)
    [first, second] = append(wal, 2)
    down = True

    def interrupted(entry: WalEntry, boundary: Boundary) -> None:
        apply(entry, boundary)
        if down and entry.id == second:
            raise interruption

    for _ in range(3):
        with pytest.raises(type(interruption)):
            wal.recover(interrupted)
        assert wal.recovering
        with pytest.raises(WalRecoveringError):
            wal.append("alice", "Create", b"")
    assert [entry.id for entry in wal.pending_entries()] == [second]
    assert ledger.job(second).spent == 0
    down = False
    assert wal.recover(interrupted) == WalRecovery(completed=(second,))
    assert not wal.recovering
    assert effects(ledger_url) == {first: 1, second: 1}


# ---------------------------------------------------------------------------------------------------------------------
# Crashes


class Crashing:
    """A world that dies when it has passed so many of the points where a crash is worth planning."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.passed: list[str] = []

    def reach(self, point: str) -> None:
        self.passed.append(point)
        if len(self.passed) == self.at:
            raise Crash(point)

    def ledger(self, url: str, clock: VirtualClock) -> Ledger:
        return Ledger(url, world=msgspec.structs.replace(virtual_world(clock), reach=self.reach))


def recover_and_die(url: str, clock: VirtualClock, name: str, at: int | None) -> list[str]:
    """Recover in a process of its own that dies at a point; return the points that it passed."""
    world = Crashing(at)
    with world.ledger(url, clock) as ledger:
        try:
            Wal(ledger, name=name, max_attempts=3).recover(poison)
        except Crash:
            assert len(world.passed) == at
        else:
            assert at is None or len(world.passed) < at
    return world.passed


@pytest.mark.req("W-05", "W-07", "W-14", "W-15")
def test_recovery_survives_a_crash_anywhere_in_itself(ledger_url: str, clock: VirtualClock) -> None:
    with virtual_ledger(ledger_url, clock) as ledger:
        make_storage(ledger)
        append(Wal(ledger, name="whole", max_attempts=3), 3, client="whole")
        points = recover_and_die(ledger_url, clock, "whole", None)
        assert Counter(points) == {
            "during_claim": 5,
            "after_claim": 5,
            "before_commit": 2,
            "after_commit": 2,
            "during_failure": 3,
            "after_failure": 3,
        }
        step = 1 if ledger_url.startswith("sqlite") else 3  # the points are the engine's, whatever the database
        for at in range(1, len(points) + 1, step):
            name = f"log-{at}"
            wal = Wal(ledger, name=name, max_attempts=3)
            [first, second, third] = append(wal, 3, client=name)
            recover_and_die(ledger_url, clock, name, at)
            clock.advance(LEASE_S)
            recover_and_die(ledger_url, clock, name, 1 + at * 7 % len(points))  # and the next one dies elsewhere
            clock.advance(LEASE_S)
            report = wal.recover(poison)
            assert set(report.completed) <= {first, third}
            assert set(report.failed) <= {second}
            assert [wal.get(entry).status for entry in (first, second, third)] == [COMPLETED, FAILED, COMPLETED]
            assert wal.get(second).attempts == 3  # those that a crash cut short count too
            # The client, who got no answer, asks again.
            assert append(wal, 3, client=name) == [first, second, third]
            found = effects(ledger_url)
            assert (found[first], found[second], found[third]) == (1, 0, 1)


@pytest.mark.req("W-03", "W-15")
def test_a_crash_during_an_append_leaves_all_of_it_or_nothing(wal: Wal) -> None:
    wal.pending_count()
    for key, (point, there) in enumerate([("during_submit", False), ("after_submit", True)], start=1):
        with crash_at(point):
            wal.append_with_idempotency("alice", key, "Create", b"body")
        found = wal.find_by_idempotency_key("alice", key)
        assert (found is not None) is there
        entry_id, is_new = wal.append_with_idempotency("alice", key, "Create", b"body")
        assert is_new is not there
        assert found is None or found.id == entry_id
        assert wal.pending_count() == key


@pytest.mark.req("W-04", "W-15")
def test_a_crash_during_a_completion_leaves_all_of_it_or_nothing(ledger: Ledger, ledger_url: str) -> None:
    wal = Wal(ledger)
    for entry_id, point, status in zip(
        append(wal, 2), ("before_commit", "after_commit"), (PENDING, COMPLETED), strict=True
    ):
        with crash_at(point):
            wal.complete(entry_id, "first", effects=[put(wal.get(entry_id))])
        assert wal.get(entry_id).status is status
        assert effects(ledger_url)[entry_id] == (status is COMPLETED)
        # No lease is left: the next process does not wait.
        assert Wal(ledger).execute(entry_id, apply).status is COMPLETED
        assert effects(ledger_url)[entry_id] == 1
        assert wal.complete(entry_id, "again", effects=[put(wal.get(entry_id))]).status is COMPLETED
        assert effects(ledger_url)[entry_id] == 1


@pytest.mark.req("W-04", "W-15")
def test_a_crash_during_a_failure_leaves_all_of_it_or_nothing(wal: Wal, ledger_url: str) -> None:
    for entry_id, point, status in zip(
        append(wal, 2), ("during_failure", "after_failure"), (PENDING, FAILED), strict=True
    ):
        with crash_at(point):
            wal.fail(entry_id, "no")
        assert wal.get(entry_id).status is status
        assert wal.fail(entry_id, "no").status is FAILED
    assert effects(ledger_url) == {}


@pytest.mark.req("W-09", "W-19")
def test_recovery_ends_within_three_seconds(ledger_url: str, clock: VirtualClock) -> None:
    """Two recoveries crash one after the other, at every 10 ms another is tried, and within 3000 ms all is done."""
    with virtual_ledger(ledger_url, clock) as ledger:
        make_storage(ledger)
        ids = append(Wal(ledger), 5)
    with virtual_ledger(ledger_url, clock, seed=1) as ledger, crash_at("after_claim"):
        Wal(ledger).recover(apply)
    clock.advance(0.5)
    crashed_ms, checked = clock.monotonic() * 1000, 0
    with virtual_ledger(ledger_url, clock, seed=2) as ledger:
        wal = Wal(ledger)
        while wal.pending_count():
            try:
                wal.recover(apply)
            except WalRecoveringError:  # the crashed one's lease still lives, and there is no waiting here
                assert wal.pending_count() == 5
                clock.advance(0.01)
                checked += 1
        assert not wal.recovering
        took_ms = clock.monotonic() * 1000 - crashed_ms
        assert (checked, round(took_ms)) == (150, 1500)  # two seconds of lease, half a second of them gone before
        assert took_ms <= 3000
        assert effects(ledger_url) == dict.fromkeys(ids, 1)
        assert {wal.get(entry_id).status for entry_id in ids} == {COMPLETED}


@pytest.mark.req("W-09")
def test_no_client_starves(wal: Wal, ledger_url: str) -> None:
    """Entries of many clients, one of whom has only poison: the entries of all clients end."""
    ids = {client: append(wal, 4, client=client) for client in ("alice", "bob", "poison", "zoe")}

    def but_one(entry: WalEntry, boundary: Boundary) -> None:
        apply(entry, boundary)
        if entry.client == "poison":
            raise ValueError("never")

    report = wal.recover(but_one)
    assert report.failed == tuple(ids.pop("poison"))
    assert sorted(report.completed) == sorted(entry for entries in ids.values() for entry in entries)
    assert effects(ledger_url) == dict.fromkeys(report.completed, 1)


# ---------------------------------------------------------------------------------------------------------------------
# More than one


@pytest.mark.req("W-05", "W-16")
def test_a_recovery_that_was_overtaken_changes_nothing(ledger_url: str, clock: VirtualClock) -> None:
    """The first is away for longer than its lease; the second does its work; the first comes back with the same."""
    with (
        virtual_ledger(ledger_url, clock) as ledger,
        virtual_ledger(ledger_url, clock, seed=1) as elsewhere,
    ):
        make_storage(ledger)
        wal, other = Wal(ledger), Wal(elsewhere)
        [first, second] = append(wal, 2)

        def away(entry: WalEntry, boundary: Boundary) -> str:
            apply(entry, boundary)
            if entry.id == first:
                with pytest.raises(WalRecoveringError) as caught:
                    other.recover(apply)
                assert caught.value.context["holder"] == "wal-main-virtual-0-1"
                clock.advance(LEASE_S)
                assert other.recover(apply) == WalRecovery(completed=(first, second))
            return "the first"

        assert wal.recover(away) == WalRecovery(completed=(first, second))
        assert effects(ledger_url) == {first: 1, second: 1}
        assert [wal.get(entry).result for entry in (first, second)] == [{"stored": first}, {"stored": second}]
        assert wal.get(first).attempts == 1  # the lost lease is excused


@pytest.mark.req("W-05")
def test_a_recovery_that_was_away_and_not_overtaken_completes(ledger: Ledger, ledger_url: str) -> None:
    wal = Wal(ledger)
    [entry_id] = append(wal, 1)
    clock = ledger.world.clock
    assert isinstance(clock, VirtualClock)

    def away(entry: WalEntry, boundary: Boundary) -> None:
        apply(entry, boundary)
        clock.advance(10 * LEASE_S)

    assert wal.recover(away) == WalRecovery(completed=(entry_id,))
    assert effects(ledger_url) == {entry_id: 1}


@pytest.mark.req("W-05", "W-15")
def test_two_recoveries_at_once_apply_each_entry_once(real: Ledger, ledger_url: str) -> None:
    ids = append(Wal(real), 30)
    line = threading.Barrier(2)
    orders: list[list[int]] = [[], []]

    def recover(number: int) -> WalRecovery:
        def noting(entry: WalEntry, boundary: Boundary) -> None:
            orders[number].append(entry.id)
            apply(entry, boundary)

        with Ledger(ledger_url) as mine:
            line.wait(30)
            return Wal(mine).recover(noting)

    with ThreadPoolExecutor(2) as threads:
        reports = [running.result(60) for running in [threads.submit(recover, number) for number in range(2)]]
    assert effects(ledger_url) == dict.fromkeys(ids, 1)
    assert sorted(orders[0] + orders[1]) == ids  # no thread began what another held
    assert orders == [sorted(order) for order in orders]
    assert {report.failed for report in reports} == {()}
    assert max(reports, key=lambda report: len(report.completed)).completed == tuple(ids)


@pytest.mark.req("W-05")
def test_a_slow_apply_keeps_its_entry(real: Ledger, ledger_url: str) -> None:
    """It takes longer than its lease and keeps its entry: another waits, and gives up after its own limit."""
    slow, other = Wal(real, lease_s=3), Wal(real, lease_s=3)
    [entry_id] = append(slow, 1)
    begun = threading.Event()

    def takes_long(entry: WalEntry, boundary: Boundary) -> str:
        begun.set()
        time.sleep(4)
        apply(entry, boundary)
        return "slow"

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(slow.recover, takes_long)
        assert begun.wait(30)
        with pytest.raises(WalRecoveringError) as caught:
            other.recover(apply, wait_s=0.5)
        assert (caught.value.context["wal"], caught.value.context["holder"]) == ("main", slow.worker)
        assert other.recover(apply) == WalRecovery()  # waits until it is done
        assert running.result(60) == WalRecovery(completed=(entry_id,))
    assert (slow.get(entry_id).result, slow.get(entry_id).attempts) == ("slow", 1)
    assert effects(ledger_url) == {entry_id: 1}


@pytest.mark.req("W-05")
def test_recovery_waits_for_the_lease_of_a_dead_process(real: Ledger, ledger_url: str) -> None:
    dead, wal = Wal(real, lease_s=0.4), Wal(real)
    [entry_id] = append(dead, 1)
    began = time.monotonic()
    assert isinstance(dead._begun(entry_id), Attempt)
    assert real.job(entry_id).state is JobState.RUNNING
    assert wal.recover(apply) == WalRecovery(completed=(entry_id,))
    assert 0.3 < time.monotonic() - began < 30
    with pytest.raises(InvalidStateTransitionError):
        dead.fail(entry_id, "too late")
    assert effects(ledger_url) == {entry_id: 1}


@pytest.mark.req("W-05", "W-03")
def test_a_recovery_waits_for_the_append_of_another_process_that_is_not_durable_yet(real: Ledger) -> None:
    """The append has looked for a recovery and found none: the recovery begins after it, and sees its entry."""
    wal = Wal(real)
    inside, go = threading.Event(), threading.Event()
    with Ledger(real.url or "") as elsewhere, ThreadPoolExecutor(2) as threads:
        other = Wal(elsewhere)
        other.pending_count()
        submitted = elsewhere.submit_in

        def slow(transaction: Transaction, calls: Sequence[Call]) -> list[Admission]:
            admissions = submitted(transaction, calls)
            inside.set()
            assert go.wait(30)
            return admissions

        elsewhere.submit_in = slow  # type: ignore[method-assign, assignment]
        appending = threads.submit(other.append, "alice", "Create", b"late")
        assert inside.wait(30)
        recovering = threads.submit(wal.recover, apply)
        time.sleep(0.3)
        assert not recovering.done()
        go.set()
        assert recovering.result(30).completed == (appending.result(30),)


@pytest.mark.req("W-15")
@pytest.mark.parametrize("fault", FAULTS)
def test_the_faults_of_the_published_simulation(fault: str, ledger: Ledger, ledger_url: str) -> None:
    """Whatever the fault, a client that repeats its key and a recovery leave one entry that took effect once."""
    with crash_at(fault):
        wal = Wal(ledger)
        entry_id, _ = wal.append_with_idempotency("alice", 1, "Create", b"body")
        wal.execute(entry_id, apply)
    clock = ledger.world.clock
    assert isinstance(clock, VirtualClock)
    clock.advance(LEASE_S)
    after = Wal(ledger)
    found = after.find_by_idempotency_key("alice", 1)
    left = {"CrashDuringWalAppend": None, "CrashDuringWalComplete": COMPLETED}.get(fault, PENDING)
    assert (found and found.status) == left
    entry_id, is_new = after.append_with_idempotency("alice", 1, "Create", b"body")
    assert is_new is (found is None)
    assert after.recover(apply).completed == (() if left is COMPLETED else (entry_id,))
    assert effects(ledger_url) == {entry_id: 1}
