"""Refused ledgers and values: a typed error with a code, a next step and an exit code, and nothing is written."""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from holdfast.core.errors import (
    BadUrlError,
    HoldfastError,
    InputError,
    JobNotFoundError,
    NotALedgerError,
    RefusedByDatabaseError,
    SchemaVersionError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from holdfast.store import Store, Submission, create_store, open_store
from holdfast.store.urls import shown
from holdfast.store.verbs.bulk import Columns
from tests.store.verbs import Verbs
from tests.support.postgres import Server, tmpfs_directory

pytestmark = pytest.mark.attack("input")

ROOT = Path(__file__).resolve().parents[2]
OPENERS = [open_store, create_store]
Opener = Callable[[str], Store[object]]


@pytest.fixture
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="holdfast-bad-", dir=tmpfs_directory()))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def contents(directory: Path) -> dict[str, bytes | None]:
    """Return every name under a directory with its bytes."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


def refused(url: str, opener: Opener, kind: type[HoldfastError], exit_code: int) -> HoldfastError:
    """Check that opening fails with an error of this kind that can be shown to a person and to a script."""
    with pytest.raises(HoldfastError) as caught:
        opener(url)
    error = caught.value
    assert type(error) is kind, error
    assert error.exit_code == exit_code
    shown = error.as_dict()
    assert shown["error_code"] == kind.code
    assert shown["error_message"] == str(error) != ""
    assert shown["context"] == {**error.context, "next_step": error.hint}
    assert error.hint
    json.dumps(shown)
    return error


# ---------------------------------------------------------------------------------------------------------------------
# URLs


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize(
    "url",
    [
        "",
        " \t",
        "\0",
        "a\0b",
        "mysql://user:secret-word@host/db",
        "http://[::1",
        "sqlite://host/x",
        "sqlite://",
        "sqlite:///",
        "sqlite:///a%00b",
        "postgresql://user:secret-w%zzord@host/db",
        "postgresql://host/db?no_such_option=1",
        "postgresql://[::1",
        "postgresql:work",
        "postgres:/host/db",
        "PostgreSQL:work",
        "postgresql+psycopg:work",
        "host=localhost password=secret-word",
        "  dbname = work",
        "user=me",
        "password=secret-word host=h",
        "sqlite:work.db",
        "sqlite3:work.db",
        "file:work.db?mode=rwc",
        "mysql:work",
        "me:secret-word@localhost/work",
        ":memory:",
        "sqlite:///:memory:",
        "a\nb.db",
        "\ud800.db",
        "http://user:secret-word\u2100@host/db",
        b"work.db",
        7,
        None,
    ],
)
def test_a_url_that_names_no_database(
    url: str, opener: Opener, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    error = refused(url, opener, BadUrlError, 2)
    assert "secret" not in json.dumps(error.as_dict())
    assert contents(directory) == {}


@pytest.mark.parametrize("name", ["a=b.db", "work:1.db", "mémo.db", "a b.db", "me@work.db", "user=", "C:work.db"])
def test_a_file_may_have_an_unusual_name(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    if name == "user=":
        create_store("work.db").close()
        Path("work.db").rename(name)  # a file that exists is opened, whatever its name
    create_store(name).close()
    open_store(name).close()
    assert name in contents(directory)


@pytest.mark.parametrize(
    "url, shown_as",
    [
        ("work.db", "work.db"), ("/a/b c.db", "/a/b c.db"), ("sqlite:///work.db", "sqlite:///work.db"),
        ("postgresql://me:secret-word@host:5432/db", "host:5432/db"), ("postgresql://host/db", "host/db"),
        ("postgresql://me@host/db?password=secret-word", "host/db"), ("postgresql:///db?user=me", "/db"),
        ("postgresql://host/db?password=x@secret-word", "…"), ("postgresql://me:a@secret-word@host/db", "…"),
        ("postgresql://me:secret-word?@host/db", "…"), ("postgresql://me:a/secret-word@host/db", "…"),
        ("host=h password=secret-word", "…"), ("me:secret-word@host/db", "…"), ("password=secret-word", "…"),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_its_password(url: str, shown_as: str) -> None:
    assert shown(url) == shown_as


# ---------------------------------------------------------------------------------------------------------------------
# Files


@pytest.mark.parametrize("opener", OPENERS)
def test_a_missing_directory(opener: Opener, directory: Path) -> None:
    error = refused(str(directory / "no" / "ledger.db"), opener, StoreUnavailableError, 4)
    assert error.hint == "Create the directory, or correct the path."
    assert contents(directory) == {}


@pytest.mark.parametrize("opener", OPENERS)
def test_a_directory(opener: Opener, directory: Path) -> None:
    error = refused(f"sqlite:///{directory}", opener, StoreUnavailableError, 4)
    assert error.hint == "Name a file inside it."
    assert contents(directory) == {}


@pytest.mark.parametrize("opener", OPENERS)
def test_a_name_that_is_too_long(opener: Opener, directory: Path) -> None:
    refused(str(directory / ("x" * 5000)), opener, StoreUnavailableError, 4)
    assert contents(directory) == {}


def test_no_file_is_made_by_opening(directory: Path) -> None:
    error = refused(str(directory / "ledger.db"), open_store, NotALedgerError, 4)
    assert error.hint == "Create one with `holdfast init`."
    assert contents(directory) == {}


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("text", [b"not a database, but text\n" * 100, b"SQLite format 3\0" + b"\xff" * 200, b"xy"])
def test_a_file_that_is_not_sqlite(opener: Opener, directory: Path, text: bytes) -> None:
    (directory / "ledger.db").write_bytes(text)
    refused(str(directory / "ledger.db"), opener, NotALedgerError, 4)
    assert contents(directory) == {"ledger.db": text}


def test_an_empty_file_is_no_ledger_and_stays_empty(directory: Path) -> None:
    (directory / "ledger.db").touch()
    refused(str(directory / "ledger.db"), open_store, NotALedgerError, 4)
    assert contents(directory) == {"ledger.db": b""}


def foreign(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_sqlite_database_that_is_not_a_ledger(directory: Path) -> None:
    foreign(directory / "app.db", "CREATE TABLE users (id INTEGER)", "INSERT INTO users VALUES (1)")
    before = contents(directory)
    refused(str(directory / "app.db"), open_store, NotALedgerError, 4)
    assert contents(directory) == before


@pytest.mark.parametrize("opener", OPENERS)
def test_a_database_that_has_something_else_under_holdfasts_names(opener: Opener, directory: Path) -> None:
    foreign(directory / "app.db", "CREATE TABLE holdfast_jobs (id INTEGER)")
    before = contents(directory)
    error = refused(str(directory / "app.db"), opener, NotALedgerError, 4)
    assert "holdfast_jobs" in error.message
    assert contents(directory) == before


def test_a_ledger_can_live_beside_other_tables(directory: Path) -> None:
    foreign(directory / "app.db", "CREATE TABLE users (id INTEGER)", "INSERT INTO users VALUES (1)")
    create_store(str(directory / "app.db")).close()
    with open_store(str(directory / "app.db")) as store, store.reading() as reading:
        assert store.execute(reading.connection, "SELECT id FROM users") == [(1,)]


@pytest.mark.parametrize("opener", OPENERS)
def test_a_newer_schema(opener: Opener, ledger_url: str) -> None:
    with create_store(ledger_url) as store, store.transaction() as transaction:
        row = "INSERT INTO holdfast_migrations VALUES (9999, 'from the future', 'digest', 'later')"
        store.execute(transaction.connection, row)
    files = Path(ledger_url.removeprefix("sqlite:///")).parent if ledger_url.startswith("sqlite") else None
    before = contents(files) if files else None
    error = refused(ledger_url, opener, SchemaVersionError, 4)
    assert error.hint == "Upgrade Holdfast on this machine."
    assert error.context["ledger"] == 9999
    if files:
        assert contents(files) == before


@pytest.mark.parametrize("opener", OPENERS)
def test_a_schema_whose_history_was_changed(opener: Opener, ledger_url: str) -> None:
    with create_store(ledger_url) as store, store.transaction() as transaction:
        store.execute(transaction.connection, "UPDATE holdfast_migrations SET digest = 'another' WHERE number = 1")
    error = refused(ledger_url, opener, SchemaVersionError, 4)
    assert error.context == {"changed": [1]}


# ---------------------------------------------------------------------------------------------------------------------
# What may not be written. Root may write everything, so a child without privileges tries.

TRY = """
import json, os, sys, tempfile
from holdfast.core.errors import HoldfastError
from holdfast.store import Submission, create_store, migrations, open_store

mode, url, uid = sys.argv[1:]
# Nobody may not be able to read the interpreter or these sources: have them read before.
known = migrations.migrations("sqlite")
migrations.migrations = lambda _: known
with tempfile.TemporaryDirectory() as warm, create_store(warm + "/ledger.db") as store:
    with store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}")], actor="root")
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
try:
    with {"open": open_store, "create": create_store}[mode](url) as store, store.transaction() as transaction:
        transaction.jobs.submit([Submission(operation="noop", payload="{}")], actor="nobody")
    print(json.dumps({"error_code": None}))
except HoldfastError as error:
    print(json.dumps(error.as_dict() | {"exit_code": error.exit_code}))
"""


def as_unprivileged_user(mode: str, url: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", TRY, mode, url, "65534"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("mode", ["open", "create"])
@pytest.mark.parametrize("locked", ["file", "directory", "both"])
def test_a_ledger_that_may_not_be_written(directory: Path, mode: str, locked: str) -> None:
    create_store(str(directory / "ledger.db")).close()
    for path in directory.iterdir():
        path.chmod(0o444 if locked != "directory" else 0o666)
    directory.chmod(0o555 if locked != "file" else 0o777)
    before = contents(directory)
    answer = as_unprivileged_user(mode, str(directory / "ledger.db"))
    after = contents(directory)
    directory.chmod(0o755)
    assert (answer["error_code"], answer["exit_code"]) == (StoreReadOnlyError.code, 4)
    assert answer["context"] == {"next_step": StoreReadOnlyError.next_step}
    # SQLite may leave its shared-memory file, which holds nothing; the ledger itself is as it was.
    assert {name: text for name, text in after.items() if not name.endswith(("-shm", "-wal"))} == before
    assert after.get("ledger.db-wal", b"") == b""


def test_a_new_ledger_in_a_directory_that_may_not_be_written(directory: Path) -> None:
    directory.chmod(0o555)
    answer = as_unprivileged_user("create", str(directory / "ledger.db"))
    assert (answer["error_code"], answer["exit_code"]) == (StoreUnavailableError.code, 4)
    assert contents(directory) == {}


def test_a_directory_that_may_not_be_entered(directory: Path) -> None:
    create_store(str(directory / "ledger.db")).close()
    before = contents(directory)
    directory.chmod(0o000)
    answers = [as_unprivileged_user(mode, str(directory / "ledger.db")) for mode in ("open", "create")]
    directory.chmod(0o755)
    assert [(answer["error_code"], answer["exit_code"]) for answer in answers] == [(StoreUnavailableError.code, 4)] * 2
    assert contents(directory) == before


# ---------------------------------------------------------------------------------------------------------------------
# PostgreSQL


@pytest.mark.parametrize("opener", OPENERS)
def test_a_port_without_a_server(opener: Opener) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        url = f"postgresql://user:secret-word@127.0.0.1:{port}/db"
        error = refused(url, opener, StoreUnavailableError, 4)
    assert error.hint == StoreUnavailableError.next_step
    assert "secret" not in json.dumps(error.as_dict())


@pytest.mark.parametrize("opener", OPENERS)
def test_a_port_that_is_no_number(opener: Opener) -> None:
    error = refused("postgresql://user:secret-word@127.0.0.1:port/db", opener, StoreUnavailableError, 4)
    assert "secret" not in json.dumps(error.as_dict())


@pytest.mark.parametrize("opener", OPENERS)
def test_a_database_that_does_not_exist(opener: Opener, pg_url: str) -> None:
    error = refused(pg_url + "_not", opener, StoreUnavailableError, 4)
    assert "does not exist" in error.message


def test_an_empty_database_is_no_ledger_and_stays_empty(pg_url: str) -> None:
    refused(pg_url, open_store, NotALedgerError, 4)
    with psycopg.connect(pg_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'holdfast%'").fetchone() == (0,)


@pytest.mark.parametrize("opener", OPENERS)
def test_a_wrong_password_is_never_shown(opener: Opener, pg_server: Server, pg_url: str) -> None:
    """One role of the test server needs a password; the rest of the server stays as it was."""
    rules = pg_server.data / "pg_hba.conf"
    before = rules.read_text()
    admin = psycopg.connect(pg_url, autocommit=True)
    try:
        admin.execute("SET password_encryption = 'scram-sha-256'")
        admin.execute("CREATE ROLE locked LOGIN PASSWORD 'right-word'")
        rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{before}")
        admin.execute("SELECT pg_reload_conf()")
        for _ in range(500):  # the server reads its rules in its own time
            if admin.execute("SELECT count(*) FROM pg_hba_file_rules WHERE user_name = '{locked}'").fetchone() == (1,):
                break
        url = pg_url.replace("postgres@", "locked:secret-word@")
        error = refused(url, opener, StoreUnavailableError, 4)
        assert "password authentication failed" in error.message
        shown = json.dumps(error.as_dict()) + repr(error) + repr(error.__cause__)
        assert "secret-word" not in shown
    finally:
        rules.write_text(before)
        admin.execute("SELECT pg_reload_conf()")
        admin.execute("DROP ROLE IF EXISTS locked")
        admin.close()


def test_a_role_that_may_not_write(new_postgres_ledger: str) -> None:
    with psycopg.connect(new_postgres_ledger, autocommit=True) as admin:
        admin.execute("CREATE ROLE reader LOGIN")
        try:
            admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
            with (
                open_store(new_postgres_ledger.replace("postgres@", "reader@")) as store,
                pytest.raises(StoreReadOnlyError) as caught,
                store.transaction() as transaction,
            ):
                transaction.jobs.submit([Submission(operation="noop", payload="{}")], actor="reader")
            assert caught.value.exit_code == 4
            assert admin.execute("SELECT count(*) FROM holdfast_jobs").fetchone() == (0,)
        finally:
            admin.execute("DROP OWNED BY reader")
            admin.execute("DROP ROLE reader")


@pytest.mark.parametrize("opener", OPENERS)
def test_a_database_that_would_acknowledge_too_early(opener: Opener, pg_url: str) -> None:
    name = pg_url.rpartition("/")[2]
    with psycopg.connect(pg_url, autocommit=True) as admin:
        admin.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(sql.Identifier(name)))
    with pytest.raises(HoldfastError) as caught:
        opener(pg_url)
    assert (caught.value.code, caught.value.exit_code) == ("not_durable", 4)
    assert caught.value.context == {"synchronous_commit": "off"}


WITHOUT_PSYCOPG = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0].startswith("psycopg"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
from holdfast.core.errors import HoldfastError
from holdfast.store import create_store, open_store

answers = []
for opener in (open_store, create_store):
    try:
        opener("postgresql://host/db")
    except HoldfastError as error:
        answers.append(error.as_dict() | {"exit_code": error.exit_code})
create_store(sys.argv[1]).close()
print(json.dumps(answers))
"""


def test_without_the_postgres_extra_its_urls_say_what_to_install(sqlite_url: str) -> None:
    """And SQLite works without it."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PSYCOPG, sqlite_url], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (
        json.loads(done.stdout)
        == [
            {
                "error_code": "store_error",
                "error_message": "PostgreSQL support is not installed",
                "context": {"next_step": "Install it with: pip install 'holdfast[postgres]'"},
                "exit_code": 4,
            }
        ]
        * 2
    )


# ---------------------------------------------------------------------------------------------------------------------
# What the verbs are given. The engine checks more, and earlier; the store never lets a driver's error out.

UNSTORABLE: dict[str, dict[str, Any]] = {
    "an empty key": {"key": ""},
    "a key with a zero character": {"key": "a\0b"},
    "a client with half a surrogate pair": {"client": "\ud800"},
    "a queue with half a surrogate pair": {"queue": "q\udfff"},
    "a priority above the column": {"priority": 1 << 31},
    "a priority below the column": {"priority": -(1 << 31)},
    "no attempt at all": {"max_attempts": 0},
    "more attempts than the column holds": {"max_attempts": 1 << 31},
    "less than no replay": {"replay_attempts": -1},
    "a time without a zone": {"run_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is the fault
}


@pytest.mark.parametrize("name", UNSTORABLE)
def test_a_submission_that_a_database_could_not_hold_cannot_be_made(name: str) -> None:
    with pytest.raises(InputError) as caught:
        Submission(operation="noop", payload="{}", **UNSTORABLE[name])
    # These two have the code of a wrong argument, as in the ledger's API.
    code = "arguments_invalid" if name in ("an empty key", "a time without a zone") else "bad_input"
    assert (caught.value.code, caught.value.exit_code) == (code, 2)


def test_the_largest_numbers_can_be_held(verbs: Verbs) -> None:
    most = (1 << 31) - 1
    job = verbs.job(verbs.submit(priority=-most, max_attempts=most, replay_attempts=most))
    assert (job.priority, job.max_attempts, job.replay_attempts) == (-most, most, most)
    assert verbs.job(verbs.submit(priority=most)).priority == most


def test_a_job_that_replaces_one_that_does_not_exist(verbs: Verbs) -> None:
    before = verbs.everything()
    with pytest.raises(RefusedByDatabaseError) as caught:
        verbs.submit(replaces=12345)
    assert caught.value.exit_code == 3
    assert verbs.everything() == before


def test_a_drivers_error_never_leaves_the_store(verbs: Verbs) -> None:
    """A value that passes the checks above is refused by the database, as an error of Holdfast."""
    shape = tuple(1 << 70 if value == 0 else value for value in Submission(operation="noop", payload="{}").shape)
    params = {
        "state": "pending", "version": 1, "event": "submit", "actor": "a", "reason": None, "gated": False,
        "move_id": "m", "now": verbs.store.time_parameter(),
    }  # fmt: skip
    before = verbs.everything()
    with pytest.raises(RefusedByDatabaseError), verbs.store.transaction() as transaction:
        verbs.store.insert_jobs(transaction, Columns(["{}"], ["digest"], [None], (), [shape]), **params)
    assert verbs.everything() == before


def test_parameters_by_name_are_their_values_not_their_names(verbs: Verbs) -> None:
    named, other = (":a", ":b") if verbs.store.one_writer else ("%(a)s", "%(b)s")
    with verbs.store.transaction() as transaction:
        transaction.execute("CREATE TABLE pairs (a integer, b text)")
        transaction.execute(f"INSERT INTO pairs VALUES ({named}, {other})", {"b": "x", "a": 5})
        assert transaction.execute("SELECT a, b FROM pairs") == [(5, "x")]


def test_a_job_that_does_not_exist(verbs: Verbs) -> None:
    with pytest.raises(JobNotFoundError) as caught:
        verbs.job(12345)
    assert (caught.value.exit_code, caught.value.context) == (1, {"job_id": 12345})
    with verbs.store.reading() as reading:
        assert reading.lists.attempt(12345) is None
        assert reading.lists.executions(12345) == []
        assert reading.journal.of(12345) == []
        assert reading.jobs.get_many([12345]) == []
        assert reading.grants.get(12345) is None


def test_a_claim_of_a_negative_number_returns_nothing(verbs: Verbs) -> None:
    verbs.submit()
    before = verbs.everything()
    assert verbs.claim(-1) == []
    assert verbs.everything() == before
