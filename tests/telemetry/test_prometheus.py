"""The state of a ledger in Prometheus' text format: read back by Prometheus' own parser and by promtool."""

from __future__ import annotations

import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.audit.seals.sealer import seal
from holdfast.engine.operations import LEASE_S
from holdfast.engine.worker.heartbeat import BEATS_A_LEASE
from holdfast.store import Lease, Submission, open_store
from holdfast.store.verbs.alive import ALIVE_S
from holdfast.telemetry.metrics import PREFIX, STATE
from holdfast.telemetry.prometheus import exposition
from tests.support.promtool import PROMTOOL

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(url: str) -> Samples:
    with open_store(url) as store:
        return samples(exposition(store))


def test_states_depth_age_workers_and_leases_are_shown(ledger_url: str) -> None:
    with open_store(ledger_url) as store, store.transaction() as transaction:
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        for priority, run_at in ((0, hour_ago), (5, None), (-5, None)):
            transaction.jobs.submit([Submission(operation="noop", payload="{}", priority=priority, run_at=run_at)])
        later = datetime.now(UTC) + timedelta(days=1)
        transaction.jobs.submit([Submission(operation="noop", payload="{}", queue='a"b\\c', run_at=later)])
        transaction.workers.seen("worker-1", ["default", "other"], ["noop@1.0.0"], 4)
        transaction.workers.seen("worker-2", ["default"], ["noop@1.0.0"], 8)
        transaction.workers.stopped("worker-2")
        transaction.executions.claim(Lease(owner="worker-1", seconds=3600))
    with open_store(ledger_url) as store, store.transaction() as transaction:
        transaction.queues.pause("other", actor="tests", reason="it is a test")
    found = scraped(ledger_url)
    noop = ("operation", "noop")
    assert found["holdfast_jobs", (noop, ("queue", "default"), ("state", "pending"))] == 2
    assert found["holdfast_jobs", (noop, ("queue", "default"), ("state", "running"))] == 1
    assert found["holdfast_queue_depth", (("queue", "default"),)] == 2
    assert 3600 <= found["holdfast_queue_age_seconds", (("queue", "default"),)] < 7200
    assert found["holdfast_queue_depth", (("queue", 'a"b\\c'),)] == 1
    assert found["holdfast_queue_age_seconds", (("queue", 'a"b\\c'),)] == 0
    assert (found["holdfast_queue_paused", (("queue", "other"),)], found["holdfast_workers", ()]) == (1, 1)
    assert (found["holdfast_queue_workers", (("queue", "other"),)], found["holdfast_worker_slots", ()]) == (1, 4)
    assert found["holdfast_leases", (("status", "valid"),)] == 1
    assert found["holdfast_leases", (("status", "expired"),)] == 0


def test_the_lag_of_seals_grows_until_the_journal_is_sealed(ledger_url: str) -> None:
    def lag() -> tuple[float, float]:
        found = scraped(ledger_url)
        return found["holdfast_seal_lag_seconds", ()], found["holdfast_seal_unsealed", ()]

    with open_store(ledger_url) as store:
        seal(store)
        assert lag() == (0, 0)
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}")])
        time.sleep(0.01)
        seconds, rows = lag()
        assert (seconds > 0.005, rows >= 1) == (True, True)
        seal(store)
        assert lag() == (0, 0)


def test_an_expired_lease_is_counted(ledger_url: str) -> None:
    with open_store(ledger_url) as store:
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}")])
            transaction.executions.claim(Lease(owner="worker-1", seconds=0.001))
        deadline = time.monotonic() + 30
        while samples(exposition(store))["holdfast_leases", (("status", "expired"),)] != 1:
            assert time.monotonic() < deadline


def test_every_gauge_of_the_table_is_exposed_under_its_name(new_sqlite_ledger: str) -> None:
    with open_store(new_sqlite_ledger) as store:
        text = exposition(store)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert list(families) == [row.exposed(PREFIX) for row in STATE.values()]
    for row in STATE.values():
        family = families[row.exposed(PREFIX)]
        assert (family.type, family.documentation) == (row.kind.value, row.description)
        assert all(set(sample.labels) == set(row.labels) for sample in family.samples)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed; the end of the run says so")
def test_promtool_accepts_the_text(new_sqlite_ledger: str) -> None:
    assert PROMTOOL is not None
    with open_store(new_sqlite_ledger) as store:
        text = exposition(store)
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_worker_counts_as_stopped_after_three_missed_heartbeats() -> None:
    assert ALIVE_S == 3 * LEASE_S / BEATS_A_LEASE
