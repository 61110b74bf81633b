"""`holdfast gc`: the policy, what was done, what would be, and what clients see afterwards."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from holdfast.audit.files.archive import verify as verify_archive
from holdfast.cli.options import actor
from holdfast.store import open_store
from tests.cli.commands import at, heed_permissions, holdfast, process

OFF: dict[str, Any] = {"finished_s": None, "quarantined_s": None, "history_s": None, "archive_dir": None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "archives"
    directory.mkdir()
    return directory


def keep_nothing(ledger: str, folder: Path) -> None:
    settings = ("finished=0", "quarantined=0", "history=0", f"archive_dir={folder}")
    assert holdfast("gc", *(word for s in settings for word in ("--set", s)), "--db", ledger).code == 0


@pytest.fixture
def finished(ledger: str) -> str:
    """A ledger with one job, which was cancelled."""
    holdfast("submit", "noop", '{"n":1}', "--client", "web", "--key", "a", "--db", ledger)
    assert holdfast("cancel", "1", "--db", ledger).code == 0
    return ledger


def rows(ledger: str, sql: str) -> list[tuple[Any, ...]]:
    with open_store(ledger) as store, store.reading() as reading:
        return reading.execute(sql)


# ---------------------------------------------------------------------------------------------------------------------
# The policy


def test_the_policy_is_set_field_by_field_and_shown(ledger: str, folder: Path) -> None:
    assert holdfast("gc", "--show", "--db", ledger, "--json").json == OFF
    outcome = holdfast("gc", "--set", "finished=30d", "--set", "quarantined = 1.5 h", "--db", ledger, "--json")
    assert outcome.json == {**OFF, "finished_s": 2592000.0, "quarantined_s": 5400.0}
    outcome = holdfast(
        "gc", "--set", f"archive-dir={folder}", "--set", "history=3600", "--set", "quarantined=off",
        "--operator", "ann", "--reason", "a small disk", "--db", ledger, "--json",
    )  # fmt: skip
    expected = {"finished_s": 2592000.0, "quarantined_s": None, "history_s": 3600.0, "archive_dir": str(folder)}
    assert outcome.json == expected
    assert holdfast("gc", "--show", "--db", ledger, "--json").json == expected
    assert rows(ledger, "SELECT actor, reason FROM holdfast_journal WHERE event = 'open' ORDER BY seq") == [
        (actor(), "retention"), ("ann", "a small disk"),
    ]  # fmt: skip
    assert [line.split("  ")[0] for line in holdfast("gc", "--show", "--db", ledger).out.splitlines()] == [
        "finished jobs", "quarantined jobs", "history", "archives",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ['{"finished_s": 5, "newfield": 1}', '{"history_s": 5}', "nonsense"])
def test_an_unreadable_policy_is_refused_until_it_is_set_again(ledger: str, text: str) -> None:
    with open_store(ledger) as store, store.transaction() as transaction:
        transaction.settings.set("retention", text)
    for flags in ([], ["--show"], ["--dry-run"]):
        refused = holdfast("gc", *flags, "--db", ledger, "--json")
        assert (refused.code, refused.error_code) == (2, "bad_input")
    expected = {**OFF, "finished_s": 86400.0}
    assert holdfast("gc", "--set", "finished=1d", "--db", ledger, "--json").json == expected
    assert holdfast("gc", "--show", "--db", ledger, "--json").json == expected


def test_a_relative_directory_is_resolved_from_the_working_directory(
    sqlite_ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below" / "here").mkdir(parents=True)
    outcome = holdfast("gc", "--set", "archive_dir=below/here", "--db", sqlite_ledger, "--json")
    assert outcome.json["archive_dir"] == str(tmp_path / "below" / "here")


def test_a_directory_that_cannot_be_written_is_refused(sqlite_ledger: str, tmp_path: Path) -> None:
    (tmp_path / "archives").write_text("a file")
    outcome = holdfast("gc", "--set", f"archive_dir={tmp_path / 'archives'}", "--db", sqlite_ledger, "--json")
    assert (outcome.code, outcome.error_code) == (4, "archive_unwritable")
    assert holdfast("gc", "--show", "--db", sqlite_ledger, "--json").json == OFF


def test_a_directory_that_does_not_exist_yet_is_marked(sqlite_ledger: str, tmp_path: Path) -> None:
    outcome = holdfast("gc", "--set", f"archive_dir={tmp_path / 'archives'}", "--db", sqlite_ledger)
    assert (outcome.code, outcome.out.count("not on this machine")) == (0, 1)
    (tmp_path / "archives").mkdir()
    assert "not on this machine" not in holdfast("gc", "--show", "--db", sqlite_ledger).out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--set", "finished"),
        ("--set", "finished=soon"),
        ("--set", "finished=-1d"),
        ("--set", "finished=1 fortnight"),
        ("--set", "finished=999999999d"),
        ("--set", "forever=1d"),
        ("--set", "history=1d"),
        ("--set", "archive_dir="),
        ("--set", "finished=1d", "--set", "history=never"),
        ("--set", "finished=1d", "--operator", " "),
        ("--set", "finished=1d", "--reason", ""),
        ("--dry-run", "--show"),
        ("--dry-run", "--set", "finished=1d"),
    ],
    ids=" ".join,
)
def test_an_invalid_policy_is_refused_and_changes_nothing(sqlite_ledger: str, arguments: tuple[str, ...]) -> None:
    outcome = holdfast("gc", *arguments, "--db", sqlite_ledger, "--json")
    assert (outcome.code, outcome.error_code) == (2, "bad_input")
    assert holdfast("gc", "--show", "--db", sqlite_ledger, "--json").json == OFF
    assert rows(sqlite_ledger, "SELECT count(*) FROM holdfast_journal") == [(0,)]


# ---------------------------------------------------------------------------------------------------------------------
# gc


def test_without_a_policy_everything_is_kept_and_the_next_step_is_printed(finished: str) -> None:
    before = rows(finished, "SELECT * FROM holdfast_jobs")
    outcome = holdfast("gc", "--db", finished)
    assert outcome.code == 0
    first, second = outcome.out.splitlines()
    assert first
    assert second.startswith(f"next: holdfast gc {at(finished)} --set finished=30d")
    assert holdfast("gc", "--db", finished, "--json").json == {
        "dry_run": False, "finished": 0, "quarantined": 0, "archives": [], "partitions": [], "held": None,
    }  # fmt: skip
    assert rows(finished, "SELECT * FROM holdfast_jobs") == before


@pytest.mark.req("W-06", "W-07", "X-09")
def test_jobs_and_history_past_their_age_are_dropped_and_archived(finished: str, folder: Path) -> None:
    keep_nothing(finished, folder)
    assert holdfast("audit", "head", "--db", finished).code == 0  # a dry run does not seal
    dry = holdfast("gc", "--dry-run", "--db", finished, "--json").json
    assert list(folder.iterdir()) == []
    wet = holdfast("gc", "--db", finished, "--json").json
    [made] = wet["archives"]
    assert wet == {
        "dry_run": False, "finished": 0, "quarantined": 1, "archives": [made], "partitions": [], "held": None,
    }  # fmt: skip
    assert dry == {**wet, "dry_run": True, "archives": [{**made, "sha256": None}]}
    assert verify_archive(folder / made["file"], sha256=made["sha256"]).last_seal == 1
    assert made == {
        "file": "journal-1-1.jsonl.gz", "first_seal": 1, "last_seal": 1, "rows": 5, "executions": 0,
        "sha256": made["sha256"],
    }  # fmt: skip
    doors = rows(finished, "SELECT DISTINCT actor, reason FROM holdfast_journal WHERE event = 'shut'")
    assert (actor(), "retention") in doors

    repeat = ("submit", "noop", '{"n":1}', "--client", "web", "--key", "a", "--db", finished)
    assert holdfast(*repeat, "--json").json == {
        "job_id": 1, "is_new": False, "state": "quarantined", "result": None, "result_expired": True,
    }  # fmt: skip
    assert holdfast(*repeat).tells(1, "quarantined")
    other = holdfast("submit", "noop", '{"n":2}', "--client", "web", "--key", "a", "--db", finished, "--json")
    assert (other.code, other.error_code) == (2, "idempotency_conflict")
    assert holdfast("audit", "verify", "--archives", str(folder), "--db", finished, "--json").json["ok"] is True


def test_the_text_output_has_one_fact_a_line(finished: str, folder: Path) -> None:
    keep_nothing(finished, folder)
    holdfast("submit", "noop", '{"n":2}', "--db", finished)
    outcome = holdfast("gc", "--operator", "ann", "--reason", "it is time", "--db", finished)
    assert outcome.tells(0, "finished", 1, "quarantined", 0, "blocks", 0, "rows", 0, "executions")
    assert outcome.tells("lock 1", "JOB 2", "pending")
    doors = rows(finished, "SELECT reason FROM holdfast_journal WHERE event = 'open' AND actor = 'ann'")
    assert doors == [("it is time",)]
    holdfast("cancel", "2", "--db", finished)
    first, second, titles, _, row = holdfast("gc", "--db", finished).out.splitlines()
    assert "0 finished and 1 quarantined" in first
    assert "2 blocks with 10 rows and 0 executions" in second
    assert titles.split() == ["FILE", "ROWS", "EXECUTIONS", "SHA-256"]
    assert row.split()[:3] == ["journal-1-2.jsonl.gz", "10", "0"]


# ---------------------------------------------------------------------------------------------------------------------
# What goes wrong


def everything(ledger: str) -> dict[str, list[tuple[Any, ...]]]:
    with open_store(ledger) as store, store.reading() as reading:
        tables = sorted(store.tables(reading.connection))
        return {table: sorted(reading.execute(f"SELECT * FROM {table}"), key=repr) for table in tables}


def test_a_missing_archive_directory_is_reported_and_nothing_changes(finished: str, folder: Path) -> None:
    keep_nothing(finished, folder)
    folder.rmdir()
    before = everything(finished)
    outcome = holdfast("gc", "--db", finished, "--json")
    assert (outcome.code, outcome.error_code) == (4, "archive_unwritable")
    assert outcome.json["context"]["errno"] == "ENOENT"
    assert everything(finished) == before


def test_an_unwritable_archive_directory_is_reported_and_nothing_changes(finished: str, folder: Path) -> None:
    keep_nothing(finished, folder)
    before = everything(finished)
    folder.chmod(0o500)
    outcome = process("gc", "--db", finished, "--json", before=heed_permissions)
    assert (outcome.code, outcome.error_code) == (4, "archive_unwritable")
    assert everything(finished) == before


@pytest.mark.pg
def test_a_full_disk_is_reported_and_no_history_is_removed(pg_url: str, folder: Path) -> None:
    """A limit on the size of this process's files simulates a full disk: PostgreSQL writes its own files."""
    assert holdfast("init", "--db", pg_url).code == 0
    holdfast("submit", "noop", "--db", pg_url)
    holdfast("cancel", "1", "--db", pg_url)
    keep_nothing(pg_url, folder)
    before = rows(pg_url, "SELECT * FROM holdfast_journal ORDER BY seq")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    outcome = process("gc", "--db", pg_url, "--json", before=limit)
    assert (outcome.code, outcome.error_code) == (4, "archive_unwritable")
    assert list(folder.iterdir()) == []
    assert rows(pg_url, "SELECT * FROM holdfast_journal ORDER BY seq")[: len(before)] == before
    assert rows(pg_url, "SELECT count(*) FROM holdfast_archives") == [(0,)]
    assert len(json.loads(process("gc", "--db", pg_url, "--json").out)["archives"]) == 1


def test_a_worker_can_leave_retention_to_others(sqlite_ledger: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from holdfast import Ledger\nledger = Ledger('elsewhere.db')\n", encoding="utf-8"
    )
    outcome = process(
        "worker", "shop:ledger", "--until-idle", "--no-retention", "--db", sqlite_ledger, "--json", cwd=tmp_path
    )
    assert (outcome.code, outcome.json["attempts"]) == (0, 0)
