"""`holdfast status`, `health`, `top` and `doctor`: what they report, their exit codes, and next steps that work."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.explain import doctor, status
from holdfast.store import Lease, Submission, open_store
from tests.cli.commands import holdfast, typed


def checks(url: str) -> dict[str, Any]:
    done = holdfast("health", "--db", url, "--json")
    assert (done.code, done.json["status"]) in ((0, "ok"), (1, "warning"))
    return {check["name"]: check for check in done.json["checks"]}


@pytest.mark.req("G-25")
def test_status_has_queue_workers_system_throughput_and_sources(ledger: str) -> None:
    with Ledger(ledger) as opened:
        opened.submit("noop")
        opened.run_until_idle()
        opened.submit("noop", queue="slow", run_at=datetime.now(UTC) - timedelta(hours=1))
    with open_store(ledger) as store, store.transaction() as transaction:
        transaction.workers.seen("worker-1", ["slow"], ["noop@1.0.0"], 4)
    report = holdfast("status", "--db", ledger, "--json").json
    assert list(report) == ["queue", "workers", "system", "throughput", "sources"]
    assert (report["queue"]["pending"], report["queue"]["succeeded"]) == (1, 1)
    slow = next(row for row in report["queue"]["queues"] if row["queue"] == "slow")
    assert (slow["pending"], slow["workers"], slow["paused"]) == (1, 1, False)
    assert 3600 <= slow["oldest_due_s"] == report["queue"]["oldest_due_s"] < 7200
    assert (report["workers"]["running"], report["workers"]["slots"]) == (1, 4)
    assert (report["system"]["environment"], report["system"]["governed"]) == ("dev", False)
    assert report["throughput"]["succeeded_per_minute"] >= 1
    assert report["sources"] == {"schedules": 0}
    shown = holdfast("status", "--db", ledger)
    assert shown.tells("1 pending", "1 succeeded", "1 running", "slow", "open", 1)
    assert holdfast("top", "--once", "--db", ledger).tells("slow", "open", 1)  # also without a terminal
    assert list(holdfast("top", "--db", ledger, "--json").json) == list(report)


@pytest.mark.req("G-25")
def test_health_warns_of_what_needs_action_and_its_next_step_works(
    ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "DISK_WARNING_BYTES", 0)
    assert {check["status"] for check in checks(ledger).values()} == {"ok"}
    with open_store(ledger) as store, store.transaction() as transaction:
        transaction.jobs.submit(
            [
                Submission(operation="noop", payload="{}", run_at=datetime.now(UTC) - timedelta(hours=1)),
                Submission(operation="noop", payload="{}", queue="slow"),
            ]
        )
        transaction.executions.claim(Lease(owner="worker-1", seconds=0.001, queues=("slow",)))
    found = checks(ledger)
    assert found["workers"]["next"] == "holdfast worker --help"  # none has ever run
    assert {name for name, check in found.items() if check["status"] == "warning"} == {"leases", "workers", "queues"}
    for check in found.values():
        if check["next"]:
            words = shlex.split(check["next"])
            assert typed(shlex.join([*words, "--db", ledger])).code == 0
    assert holdfast("health", "--db", ledger).code == 1


def test_a_full_disk_is_a_warning(sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "DISK_WARNING_BYTES", 1 << 62)
    assert checks(sqlite_ledger)["disk"]["status"] == "warning"


def test_health_of_a_ledger_out_of_reach_is_4(tmp_path: Path) -> None:
    done = holdfast("health", "--db", str(tmp_path / "nowhere.db"), "--json")
    assert done.code == 4


def test_the_throughput_of_a_busy_ledger_is_that_of_the_rows_that_are_read(
    sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "ROWS", 3)
    with Ledger(sqlite_ledger) as opened:
        opened.submit_many([{"operation": "noop"}] * 10)
        opened.run_until_idle()
        found = status.status_of(opened.store)["throughput"]
    assert found["window_s"] < 60
    assert found["succeeded_per_minute"] > 3


def test_doctor_finds_nothing_on_a_new_ledger_and_gives_the_facts(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_WARNING_BYTES", 0)
    monkeypatch.setattr(status, "DISK_WARNING_BYTES", 0)
    done = holdfast("doctor", "--db", ledger, "--json")
    facts = done.json["facts"]
    expected = {"server_version", "clock_skew_s", "pooler"} if facts["database"] == "postgres" else {
        "sqlite", "wal_bytes", "disk_free_bytes", "journal_mode",
    }  # fmt: skip
    assert expected <= facts.keys()
    shown = holdfast("doctor", "--db", ledger).out
    assert not [name for name in facts if name.endswith(("_bytes", "_s")) and name in shown]  # units are in the text
    unexpected = {finding["code"] for finding in done.json["findings"]} - {"fsync_off", "full_page_writes_off"}
    assert unexpected == set()  # the server of the tests writes without fsync


def test_doctor_names_each_problem_with_a_code_and_a_next_step(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("DISK_WARNING_BYTES", 1 << 62), ("WAL_BYTES", -1), ("FREE_SHARE", -1.0), ("CLOCK_S", -1.0),
        ("DEAD_ROWS", -1), ("DEAD_SHARE", -1.0),
    ):  # fmt: skip
        monkeypatch.setattr(doctor, name, value)
    with open_store(ledger) as store, store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}", queue="slow")])
        transaction.executions.claim(Lease(owner="worker-1", seconds=0.001, queues=("slow",)))
    done = holdfast("doctor", "--db", ledger, "--json")
    assert (done.code, done.json["ok"]) == (1, False)
    codes = {finding["code"] for finding in done.json["findings"]}
    postgres = done.json["facts"]["database"] == "postgres"
    assert codes >= ({"clock_skew", "leases_warning"} if postgres else {
        "disk_space_low", "wal_large", "file_bloated", "leases_warning",
    })  # fmt: skip
    assert all(finding["next"] for finding in done.json["findings"])
    for finding in done.json["findings"]:
        if finding["next"].startswith("holdfast") and "--db" not in finding["next"]:
            assert typed(f"{finding['next']} --db {shlex.quote(ledger)}").code == 0
    printed = holdfast("doctor", "--db", ledger)
    assert (printed.code, "leases_warning" in printed.out) == (1, True)
