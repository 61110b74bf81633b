"""Bad input: a typed error with a code and a next step, an exit code, and nothing left behind."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import sqlite3
from pathlib import Path

import pytest

from holdfast.store import create_store, open_store
from tests.cli.commands import heed_permissions, holdfast, process
from tests.cli.test_setup import execute, path_of

pytestmark = pytest.mark.attack("input")

DEEP = "[" * 65 + "]" * 65
LARGE = '"' + "x" * (1 << 20) + '"'
MODES = pytest.mark.parametrize("mode", [[], ["--json"]], ids=["people", "json"])


def files(directory: Path) -> dict[str, str]:
    """Every file of a directory with the digest of what is in it."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.iterdir() if file.is_file()}


def rows(url: str) -> dict[str, object]:
    """How many rows each table of the ledger has."""
    with open_store(url) as store, store.reading() as reading:
        tables = ("holdfast_calls", "holdfast_jobs", "holdfast_aborted", "holdfast_journal", "holdfast_count_deltas")
        return {table: reading.execute(f"SELECT count(*) FROM {table}") for table in tables}


# ---------------------------------------------------------------------------------------------------------------------
# Payloads and arguments


@pytest.mark.req("K-53")
@MODES
@pytest.mark.parametrize(
    "arguments, stdin, code",
    [
        (["noop", "{"], "", "payload_not_json"),
        (["noop", ""], "", "payload_not_json"),
        (["noop", "{'a': 1}"], "", "payload_not_json"),
        (["noop", '{"a": NaN}'], "", "payload_not_json"),
        (["noop", "[1e999]"], "", "payload_not_json"),
        (["noop", '"\\ud800"'], "", "payload_not_json"),
        (["noop", "9" * 400], "", "payload_not_json"),
        (["noop", "-"], "", "payload_not_json"),
        (["noop", DEEP], "", "payload_too_deep"),
        (["noop", "-"], "[" * 100_000, "payload_too_deep"),
        (["noop", "-"], LARGE, "payload_too_large"),
        (["noop", "@/nowhere/at/all"], "", "bad_input"),
        (["noop", "@/"], "", "bad_input"),
        (["nobody-declared-this"], "", "operation_unknown"),
        ([""], "", "bad_input"),
        (["noop", "{}", "{}"], "", "bad_input"),
        (["noop", "--key", ""], "", "bad_input"),
        (["noop", "--key", "k" * 1025], "", "bad_input"),
        (["noop", "--client", " "], "", "bad_input"),
        (["noop", "--queue", "\udcff"], "", "bad_input"),
        (["noop", "--priority", "high"], "", "bad_input"),
        (["noop", "--priority", str(2**31)], "", "bad_input"),
        (["noop", "--max-attempts", "0"], "", "bad_input"),
        (["noop", "--run-at", "tomorrow"], "", "bad_input"),
        (["noop", "--run-at", "2030-01-31T12:00:00"], "", "bad_input"),
        (["noop", "--run-at", "0001-01-01T00:00:00+14:00"], "", "bad_input"),
        (["noop", "--nonsense"], "", "bad_input"),
        (["noop", "--key"], "", "bad_input"),
        ([], "", "bad_input"),
    ],
    ids=lambda value: None if isinstance(value, list) else str(value)[:20],
)
def test_a_submission_that_cannot_be_taken(
    sqlite_ledger: str, mode: list[str], arguments: list[str], stdin: str, code: str
) -> None:
    before = rows(sqlite_ledger)
    refused = holdfast("submit", *mode, "--db", sqlite_ledger, *arguments, stdin=stdin.encode())
    assert (refused.code, refused.error_code) == (2, code)
    assert bool(refused.out) == bool(mode)
    assert rows(sqlite_ledger) == before


def test_an_unknown_operation_on_both_databases(ledger: str) -> None:
    before = rows(ledger)
    refused = holdfast("submit", "nobody-declared-this", "--db", ledger, "--json")
    assert (refused.code, refused.error_code) == (2, "operation_unknown")
    assert refused.json["context"]["operation"] == "nobody-declared-this"
    assert rows(ledger) == before


def test_no_message_carries_the_payload(sqlite_ledger: str) -> None:
    for payload in ('{"password": "hunter2"', '{"password": "hunter2", "x": ' + DEEP + "}"):
        refused = holdfast("submit", "noop", payload, "--db", sqlite_ledger)
        assert refused.code == 2
        assert "hunter2" not in refused.out + refused.err


@MODES
@pytest.mark.parametrize(
    "arguments",
    [
        ["jobs", "--state", "lost"],
        ["jobs", "--limit", "0"],
        ["jobs", "--limit", "some"],
        ["jobs", "--before", "0"],
        ["jobs", "--before", str(2**63)],
        ["jobs", "--operation", "\udcff"],
        ["show"],
        ["show", "0"],
        ["show", str(2**63)],
        ["init", "--env", "test"],
        ["stats", "--schema", "s"],
        ["dance"],
        ["--dance"],
    ],
    ids=" ".join,
)
def test_arguments_that_cannot_be_taken(sqlite_ledger: str, mode: list[str], arguments: list[str]) -> None:
    db = [] if "dance" in arguments[0] else ["--db", sqlite_ledger]
    refused = holdfast(*arguments, *db, *mode)
    assert (refused.code, refused.error_code) == (2, "bad_input")
    assert bool(refused.out) == bool(mode)


# ---------------------------------------------------------------------------------------------------------------------
# URLs and databases


COMMANDS = [["submit", "noop"], ["jobs"], ["show", "1"], ["stats"], ["migrate"], ["init"]]


@MODES
@pytest.mark.parametrize("command", [["submit", "noop"], ["jobs"], ["init"]], ids=" ".join)
@pytest.mark.parametrize(
    "url, expected",
    [
        ("mysql://host/db", (2, "url_invalid")),
        ("sqlite://host/file.db", (2, "url_invalid")),
        ("sqlite:///", (2, "url_invalid")),
        ("sqlite:///a%00b", (2, "url_invalid")),
        ("postgresql://[::1", (2, "url_invalid")),
        ("postgresql://user:pass%zzword@127.0.0.1/db", (2, "url_invalid")),
        ("", (2, "url_invalid")),
        (None, (2, "url_invalid")),
        ("{directory}/no/such/directory/ledger.db", (4, "store_unavailable")),
        ("{directory}", (4, "store_unavailable")),
        ("{directory}/" + "n" * 300, (4, "store_unavailable")),
        ("{directory}/text.db", (4, "not_a_ledger")),
    ],
    ids=lambda value: str(value)[:40] if not isinstance(value, tuple) else value[1],
)
def test_a_url_that_leads_nowhere(
    sqlite_url: str, mode: list[str], command: list[str], url: str | None, expected: tuple[int, str]
) -> None:
    directory = path_of(sqlite_url).parent
    (directory / "text.db").write_text("not a database\n" * 200)
    before = files(directory)
    where = [] if url is None else ["--db", url.format(directory=directory)]
    refused = holdfast(*command, *where, *mode)
    assert (refused.code, refused.error_code) == expected
    assert bool(refused.out) == bool(mode)
    assert "word" not in refused.out + refused.err
    assert files(directory) == before


@MODES
@pytest.mark.parametrize("command", COMMANDS[:-1], ids=" ".join)
def test_a_ledger_that_was_never_made(sqlite_url: str, mode: list[str], command: list[str]) -> None:
    refused = holdfast(*command, "--db", sqlite_url, *mode)
    assert (refused.code, refused.error_code) == (4, "not_a_ledger")
    assert "holdfast init" in refused.out + refused.err
    assert files(path_of(sqlite_url).parent) == {}


@MODES
@pytest.mark.parametrize("command", COMMANDS[:-1], ids=" ".join)
def test_a_database_that_is_not_a_ledger(empty_url: str, mode: list[str], command: list[str]) -> None:
    execute(empty_url, "CREATE TABLE mine (n integer)")
    before = files(path_of(empty_url).parent) if empty_url.startswith("sqlite") else {}
    refused = holdfast(*command, "--db", empty_url, *mode)
    assert (refused.code, refused.error_code) == (4, "not_a_ledger")
    if empty_url.startswith("sqlite"):
        assert files(path_of(empty_url).parent) == before


@MODES
@pytest.mark.parametrize("command", [["init"], ["jobs"]], ids=" ".join)
def test_a_database_that_holds_something_else_under_our_names(
    empty_url: str, mode: list[str], command: list[str]
) -> None:
    execute(empty_url, "CREATE TABLE holdfast_jobs (n integer)")
    before = files(path_of(empty_url).parent) if empty_url.startswith("sqlite") else {}
    refused = holdfast(*command, "--db", empty_url, *mode)
    assert (refused.code, refused.error_code) == (4, "not_a_ledger")
    if empty_url.startswith("sqlite"):
        after = files(path_of(empty_url).parent)
        assert {name: after[name] for name in before} == before


@MODES
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_port_without_a_server(mode: list[str], command: list[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # taken, but not listening
        url = f"postgresql://someone:pass-word@127.0.0.1:{probe.getsockname()[1]}/db"
        refused = holdfast(*command, "--db", url, *mode)
    assert (refused.code, refused.error_code) == (4, "store_unavailable")
    assert "pass-word" not in refused.out + refused.err


@MODES
def test_a_file_that_cannot_be_written(sqlite_ledger: str, mode: list[str]) -> None:
    assert holdfast("submit", "noop", "--db", sqlite_ledger).code == 0
    path = path_of(sqlite_ledger)
    path.chmod(0o444)
    before = files(path.parent)
    refused = process("submit", "noop", "--db", sqlite_ledger, *mode, before=heed_permissions)
    assert (refused.code, refused.error_code) == (4, "store_read_only")
    assert files(path.parent)["ledger.db"] == before["ledger.db"]
    # Looking is allowed.
    seen = process("jobs", "--db", sqlite_ledger, "--json", before=heed_permissions)
    assert [job["job_id"] for job in seen.json] == [1]


@MODES
def test_a_role_that_may_not_write(pg_url: str, mode: list[str]) -> None:
    create_store(pg_url).close()
    url = f"{pg_url}?options=-c%20default_transaction_read_only%3Don"
    refused = holdfast("submit", "noop", "--db", url, *mode)
    assert (refused.code, refused.error_code) == (4, "store_read_only")
    assert holdfast("jobs", "--db", url, "--json").json == []


@MODES
def test_a_directory_that_may_not_be_entered(sqlite_ledger: str, mode: list[str]) -> None:
    directory = path_of(sqlite_ledger).parent
    directory.chmod(0)
    try:
        refused = process("jobs", "--db", sqlite_ledger, *mode, before=heed_permissions)
    finally:
        directory.chmod(0o700)
    assert (refused.code, refused.error_code) == (4, "store_unavailable")


@MODES
def test_a_database_whose_write_lock_is_held(
    sqlite_ledger: str, mode: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.store.BUSY_S", 0.1)
    with contextlib.closing(sqlite3.connect(path_of(sqlite_ledger), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = holdfast("submit", "noop", "--db", sqlite_ledger, *mode)
    assert (refused.code, refused.error_code) == (4, "store_busy")
    assert holdfast("jobs", "--db", sqlite_ledger, "--json").json == []
