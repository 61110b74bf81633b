"""`holdfast snapshot`: what it prints, what it answers to programs, and its exit codes."""

from __future__ import annotations

import os
import pty
import sqlite3
import subprocess
from pathlib import Path

import pytest

from holdfast.store import open_store
from tests.cli.commands import BARS_AT_ONCE, PROGRAM, clean_environment, holdfast, process

HEADER = ["ledger_id", "epoch", "schema", "created_at", "dialect", "environment", "governed"]
ROWS = {
    "meta": 4, "operations": 3, "queues": 0, "grants": 0, "approvers": 0, "procedures": 0, "steps": 0,
    "collections": 0, "values": 0, "evidence": 0, "switches": 0, "settings": 0, "ticks": 0,
    "calls": 5, "jobs": 5, "unique": 0, "waits": 0, "after": 0, "aborted": 2, "slots": 0,
    "checkpoints": 0, "erased": 0, "seals": 0, "archives": 0,
}  # fmt: skip


@pytest.fixture
def snapshot(history: str, tmp_path: Path) -> Path:
    """A snapshot of a ledger with five jobs, one of them running."""
    path = tmp_path / "history.snapshot"
    assert holdfast("snapshot", "create", str(path), "--db", history).code == 0
    return path


def test_create_reports_what_it_wrote(history: str, tmp_path: Path) -> None:
    path = tmp_path / "a.snapshot"
    done = holdfast("snapshot", "create", str(path), "--db", history)
    assert (done.code, done.err) == (0, "")
    first, second = done.out.splitlines()
    assert f"{path}: 5 jobs, " in first
    assert first.endswith(" kB.")
    answer = holdfast("snapshot", "create", str(tmp_path / "b.snapshot"), "--db", history, "--json").json
    assert list(answer) == ["file", "bytes", "sha256", *HEADER, "rows", "not_in_it", "broken"]
    assert (answer["not_in_it"], answer["broken"]) == ([], [])
    assert answer["bytes"] == (tmp_path / "b.snapshot").stat().st_size
    assert {name: n for name, n in answer["rows"].items() if name != "journal"} == ROWS
    assert second == f"sha256 {holdfast('snapshot', 'verify', str(path), '--json').json['sha256']}"


def test_create_reports_a_broken_ledger(history: str, tmp_path: Path) -> None:
    assert holdfast("audit", "head", "--db", history).code == 0
    with open_store(history) as store, store.transaction() as transaction:
        transaction.execute("DELETE FROM holdfast_meta WHERE name = 'seal_head'")
    done = holdfast("snapshot", "create", str(tmp_path / "a.snapshot"), "--db", history)
    assert done.tells("seals_chained", "holdfast check")
    assert len(done.out.splitlines()) == 3
    answer = holdfast("snapshot", "create", str(tmp_path / "b.snapshot"), "--db", history, "--json").json
    assert answer["broken"] == ["seals_chained"]


def test_verify_reports_whether_a_snapshot_is_complete(snapshot: Path) -> None:
    done = holdfast("snapshot", "verify", str(snapshot))
    assert (done.code, done.err) == (0, "")
    first, second = done.out.splitlines()
    assert first.startswith(f"{snapshot} ")
    assert " 5 jobs, " in first
    answer = holdfast("snapshot", "verify", str(snapshot), "--json").json
    assert list(answer) == ["ok", "file", "bytes", "sha256", *HEADER, "rows", "seals", "head", "sealed", "unsealed"]
    assert (answer["ok"], answer["seals"], answer["sealed"]) == (True, 0, 0)
    assert answer["unsealed"] == answer["rows"]["journal"]
    assert f" {answer['unsealed']} " in second
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    for arguments in ((), ("--json",)):
        done = holdfast("snapshot", "verify", str(snapshot), *arguments)
        assert (done.code, done.error_code) == (2, "snapshot_invalid")


@pytest.mark.req("K-63")
def test_restore_creates_the_ledger_and_reports_it(snapshot: Path, tmp_path: Path) -> None:
    new = str(tmp_path / "new.db")
    done = holdfast("snapshot", "restore", str(snapshot), "--db", new, "--reason", "the disk died")
    assert (done.code, done.err) == (0, "")
    assert done.tells("5 jobs", "dev", "epoch 2", 1, 0)
    answer = holdfast("snapshot", "restore", str(snapshot), "--db", str(tmp_path / "newer.db"), "--json").json
    assert list(answer) == ["ledger_id", "epoch", "environment", "sha256", "rows", "expired", "finished", "grant_id"]
    assert (answer["epoch"], answer["expired"], answer["finished"], answer["grant_id"]) == (2, 1, 0, None)
    states = holdfast("stats", "--db", new, "--json").json["states"]
    assert states == {"pending": 2, "running": 0, "succeeded": 1, "failed": 1, "quarantined": 1}
    assert holdfast("submit", "noop", "--db", new).out == "job 6  pending  (new)\n"
    assert holdfast("migrate", "--db", new, "--json").json == {"applied": [], "rewritten": []}


def test_restore_refuses_a_ledger_with_content(snapshot: Path, tmp_path: Path, history: str) -> None:
    done = holdfast("snapshot", "restore", str(snapshot), "--db", history)
    assert (done.code, done.error_code) == (3, "ledger_not_empty")
    done = holdfast("snapshot", "restore", str(snapshot))
    assert (done.code, done.error_code) == (2, "url_invalid")
    done = holdfast("snapshot", "restore", str(tmp_path / "missing"), "--db", str(tmp_path / "new.db"), "--json")
    assert (done.code, done.error_code) == (2, "snapshot_invalid")
    done = holdfast("snapshot", "restore", str(snapshot), "--db", str(tmp_path / "new.db"), "--reason", " ")
    assert (done.code, done.error_code) == (2, "bad_input")
    assert not (tmp_path / "new.db").exists()


@pytest.mark.req("G-28")
def test_restore_beside_other_tables_needs_a_flag(snapshot: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "mine.db")
    connection = sqlite3.connect(place)
    connection.execute("CREATE TABLE thumbs (path TEXT)")
    connection.close()
    done = holdfast("snapshot", "restore", str(snapshot), "--db", place, "--json")
    assert (done.code, done.error_code) == (3, "effects_may_be_newer")
    assert done.json["context"]["tables"] == ["thumbs"]
    done = holdfast("snapshot", "restore", str(snapshot), "--db", place, "--tables-from-same-snapshot")
    assert done.code == 0


def test_create_does_not_replace_a_file(snapshot: Path, history: str) -> None:
    before = snapshot.read_bytes()
    for arguments in ((), ("--json",)):
        done = holdfast("snapshot", "create", str(snapshot), "--db", history, *arguments)
        assert (done.code, done.error_code) == (2, "file_exists")
    assert snapshot.read_bytes() == before


def test_diff_answers_by_its_exit_code(snapshot: Path, history: str, tmp_path: Path) -> None:
    done = holdfast("snapshot", "diff", str(snapshot), history)
    assert (done.code, done.err) == (0, "")
    assert done.tells("o difference")
    outcome = holdfast("snapshot", "diff", str(snapshot), history, "--json")
    assert outcome.code == 0
    assert list(outcome.json) == ["same", "rows", "a", "b", "tables"]
    assert (outcome.json["same"], outcome.json["tables"]) == (True, {})
    assert list(outcome.json["a"]) == HEADER
    assert holdfast("submit", "noop", "--db", history, "--key", "later").code == 0
    done = holdfast("snapshot", "diff", str(snapshot), history)
    assert (done.code, done.err) == (1, "")
    assert [line.split() for line in done.out.splitlines() if "─" not in line] == [
        ["TABLE", "ONLY", "IN", "A", "ONLY", "IN", "B", "CHANGED", "FIRST", "KEYS"],
        ["calls", "0", "1", "0", "6"],
        ["jobs", "0", "1", "0", "6"],
        ["journal", "0", "1", "0", done.out.split()[-1]],
    ]
    outcome = holdfast("snapshot", "diff", history, str(snapshot), "--json")
    assert outcome.code == 1
    assert outcome.json["tables"]["jobs"] == {
        "only_a": 1, "only_b": 0, "changed": 0, "keys": {"only_a": [6], "only_b": [], "changed": []},
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("snapshot",),
        ("snapshot", "create"),
        ("snapshot", "restore"),
        ("snapshot", "verify"),
        ("snapshot", "diff", "one"),
        ("snapshot", "burn", "it"),
        ("snapshot", "diff", "missing", "missing"),
        ("snapshot", "create", "", "--db", "{db}"),
        ("snapshot", "create", "no/where.snapshot", "--db", "{db}"),
        ("snapshot", "verify", ""),
        ("snapshot", "verify", "."),
    ],
)
def test_bad_arguments_end_with_two(arguments: tuple[str, ...], sqlite_ledger: str, tmp_path: Path) -> None:
    given = [word.format(db=sqlite_ledger) for word in arguments]
    for extra in ((), ("--json",)):
        done = holdfast(*given, *extra)
        assert done.code == 2
        assert done.error_code in ("bad_input", "snapshot_invalid", "file_exists")


def test_a_ledger_that_is_not_there_ends_with_four(tmp_path: Path) -> None:
    done = holdfast("snapshot", "create", str(tmp_path / "a"), "--db", str(tmp_path / "missing.db"), "--json")
    assert (done.code, done.error_code) == (4, "not_a_ledger")
    assert list(tmp_path.iterdir()) == []


def test_progress_bars_are_shown_on_terminals_only(sqlite_ledger: str, tmp_path: Path) -> None:
    arguments = ("snapshot", "create", str(tmp_path / "a"), "--db", sqlite_ledger)
    assert process(*arguments).err == ""
    assert b"writing" in on_a_terminal("snapshot", "create", str(tmp_path / "b"), "--db", sqlite_ledger)
    assert b"writing" not in on_a_terminal("snapshot", "create", str(tmp_path / "c"), "--db", sqlite_ledger, "--json")


def on_a_terminal(*arguments: str) -> bytes:
    """Run the command with a terminal for standard error, and return what it wrote there."""
    master, slave = pty.openpty()
    env = clean_environment() | {"TERM": "xterm", "COLUMNS": "80"}
    # A bar is drawn again every so many rows, and a small ledger has few.
    few = "import sys; from holdfast.audit.files import snapshot; snapshot.PROGRESS_ROWS = 1;"
    few += BARS_AT_ONCE
    command = [PROGRAM[0], "-c", few, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, env=env) as child:
        os.close(slave)
        written = b""
        while True:
            try:
                chunk = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            written += chunk
        child.communicate()
    os.close(master)
    assert child.returncode == 0, written
    return written
