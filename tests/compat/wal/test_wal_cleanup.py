"""Cleanup of the write-ahead log: what has ended is dropped, and its key stays taken for life."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from holdfast import Ledger
from holdfast.compat import (
    EntryStatus,
    IdempotencyConflictError,
    InvalidStateTransitionError,
    ResultExpiredError,
    Wal,
    WalRecovery,
)
from holdfast.compat import wal as wal_module
from holdfast.testing import START, VirtualClock
from tests.compat.support import JOBS, rows
from tests.compat.wal_support import append, apply, effects, put

PENDING, COMPLETED, FAILED = EntryStatus
START_MS = int(START.timestamp() * 1000)
MICROSECOND = timedelta(microseconds=1)


def dropped(wal: Wal, ids: list[int]) -> list[bool]:
    return [wal.get(entry_id).result_expired for entry_id in ids]


@pytest.mark.req("W-06", "W-19")
@pytest.mark.parametrize(
    "cutoff", [lambda at: at, lambda at: (at - START) // timedelta(milliseconds=1) + START_MS], ids=["time", "ms"]
)
def test_the_boundary_is_what_ended_before_the_cutoff(
    wal: Wal, clock: VirtualClock, cutoff: Callable[[datetime], datetime | int]
) -> None:
    ids = append(wal, 6)
    ended = []
    for entry_id in ids:
        clock.advance(0.001)
        ended.append(clock())
        if entry_id % 2:
            wal.complete(entry_id)
        else:
            wal.fail(entry_id, "no")
    assert [wal.get(entry_id).completed_at_ms for entry_id in ids] == [START_MS + n for n in range(1, 7)]
    clock.advance(3600)
    assert wal.cleanup(cutoff(ended[0])) == 0  # strictly before
    assert dropped(wal, ids) == [False] * 6
    assert wal.cleanup(cutoff(ended[2])) == 2
    assert dropped(wal, ids) == [True, True, False, False, False, False]
    assert wal.cleanup(cutoff(ended[2])) == 0
    assert wal.cleanup(ended[2] + MICROSECOND) == 1
    assert dropped(wal, ids) == [True, True, True, False, False, False]
    assert wal.cleanup(clock() - ended[4]) == 1  # an age
    assert dropped(wal, ids) == [True, True, True, True, False, False]
    assert wal.cleanup(timedelta(0)) == 2
    assert dropped(wal, ids) == [True] * 6


@pytest.mark.req("W-06")
def test_by_default_an_entry_is_kept_for_a_day(wal: Wal, clock: VirtualClock) -> None:
    [entry_id] = append(wal, 1)
    wal.complete(entry_id)
    clock.advance(24 * 3600)
    assert (wal.cleanup(), dropped(wal, [entry_id])) == (0, [False])
    clock.advance(0.000_001)
    assert (wal.cleanup(), dropped(wal, [entry_id])) == (1, [True])


@pytest.mark.req("W-06")
def test_a_pending_entry_is_never_dropped(ledger: Ledger, ledger_url: str, clock: VirtualClock) -> None:
    wal = Wal(ledger)
    [pending, running, done, last] = append(wal, 4)
    wal._begun(running)
    wal.complete(done)
    clock.advance(30 * 86_400)
    wal.complete(last)
    assert wal.cleanup(timedelta(0)) == 1  # what ended just now did not end before now
    assert dropped(wal, [pending, running, done, last]) == [False, False, True, False]
    assert [wal.get(entry_id).data for entry_id in (pending, running)] == [b"body 1", b"body 2"]
    assert Wal(ledger).recover(apply) == WalRecovery(completed=(pending, running))
    assert effects(ledger_url) == {pending: 1, running: 1}


@pytest.mark.req("W-07")
def test_a_late_retry_is_not_executed_and_learns_that_its_result_has_expired(
    wal: Wal, ledger: Ledger, ledger_url: str, clock: VirtualClock
) -> None:
    ids = [done, failed, _] = append(wal, 3)
    wal.complete(done, {"balance": 7}, effects=[put(wal.get(done))])
    wal.fail(failed, "no")
    wal.recover(apply)
    clock.advance(2 * 86_400)
    assert wal.cleanup() == 3
    clock.advance(365 * 86_400)
    for log in (wal, Wal(ledger)):
        assert append(log, 3) == ids  # the keys are taken for life
        for entry_id, key, status in zip(ids, (1, 2, 3), (COMPLETED, FAILED, COMPLETED), strict=True):
            assert log.append_with_idempotency("alice", key, "Create", f"body {key}".encode()) == (entry_id, False)
            entry = log.get(entry_id)
            assert (entry.status, entry.idempotency_key, entry.result_expired) == (status, key, True)
            assert entry.completed_at_ms == START_MS
            assert log.find_by_idempotency_key("alice", key) == entry
            for read in (lambda: entry.result, lambda: entry.data):  # noqa: B023 - called at once
                with pytest.raises(ResultExpiredError) as caught:
                    read()
                assert caught.value.code == "result_expired"
            # A client that treats the entry as new changes nothing either.
            assert log.execute(entry_id, apply) == entry
        assert log.complete(done, "again", effects=[put(wal.get(log.append("bob", "Create", b"")))]).id == done
        with pytest.raises(InvalidStateTransitionError):
            log.complete(failed)
        with pytest.raises(InvalidStateTransitionError):
            log.fail(done, "x")
        # The digest is kept, so other work under the key is still a conflict.
        with pytest.raises(IdempotencyConflictError):
            log.append_with_idempotency("alice", 1, "Create", b"other")
    assert wal.recover(lambda _entry, _boundary: None).failed == ()
    assert effects(ledger_url) == {done: 1, ids[2]: 1}
    entries = rows(
        ledger_url, "SELECT key, count(*) FROM holdfast_calls WHERE client = 'alice' GROUP BY key ORDER BY key"
    )
    assert entries == [("1", 1), ("2", 1), ("3", 1)]


@pytest.mark.req("W-06")
def test_cleanup_takes_batches_and_touches_no_other_queue(
    wal: Wal, ledger: Ledger, ledger_url: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_module, "CLEANUP_BATCH", 4)
    other = Wal(ledger, name="other")
    for entry_id in [*append(wal, 10), *append(other, 3, client="bob")]:
        (wal if entry_id <= 10 else other).complete(entry_id)
    receipt = ledger.submit("noop", {"kept": True})
    ledger.run_until_idle()
    clock.advance(1)
    assert wal.cleanup(timedelta(0)) == 10
    kept = rows(
        ledger_url,
        f"SELECT queue, count(*) FROM {JOBS} WHERE payload IS NOT NULL GROUP BY 1 ORDER BY 1",
    )
    assert kept == [("default", 1), ("wal:other", 3)]
    assert ledger.receipt(receipt.job_id).result is None
    # Each batch went through the maintenance door, and the journal says who and why.
    doors = rows(
        ledger_url, "SELECT DISTINCT actor, reason, count(*) FROM holdfast_journal WHERE event = 'open' GROUP BY 1, 2"
    )
    assert doors == [(wal.worker, "cleanup of the log main", 3)]
    notes = rows(ledger_url, "SELECT reason FROM holdfast_journal WHERE event = 'slim' ORDER BY subject")
    assert [json.loads(note) for (note,) in notes] == [
        {"jobs": 4, "first": 1, "last": 4},
        {"jobs": 4, "first": 5, "last": 8},
        {"jobs": 2, "first": 9, "last": 10},
    ]
    assert (wal.pending_count(), other.pending_count()) == (0, 0)


def test_cleanup_and_recovery_fold_the_counts(wal: Wal, ledger_url: str, clock: VirtualClock) -> None:
    """A log without any worker beside it folds its own counts: no worker does it."""
    for entry_id in append(wal, 5):
        wal.complete(entry_id)
    assert rows(ledger_url, "SELECT count(*) FROM holdfast_count_deltas") > [(5,)]
    clock.advance(1)
    wal.cleanup(timedelta(0))
    assert rows(ledger_url, "SELECT count(*) FROM holdfast_count_deltas") == [(0,)]
    append(wal, 7)
    wal.recover(apply)
    assert rows(ledger_url, "SELECT count(*) FROM holdfast_count_deltas") == [(0,)]
    assert wal.pending_count() == 0


@pytest.mark.req("W-06")
def test_a_cleanup_without_old_entries_logs_nothing(
    wal: Wal, ledger_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(wal, 2)
    with caplog.at_level(logging.DEBUG, logger="holdfast"):
        assert wal.cleanup(0) == 0
    assert rows(ledger_url, "SELECT count(*) FROM holdfast_journal WHERE event = 'open'") == [(0,)]
    assert caplog.records == []
