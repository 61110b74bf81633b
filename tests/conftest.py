"""Fixtures and options of the whole suite: fresh databases of both kinds, and the record of clauses shown.

Invariants:
- every test gets a database of its own; the PostgreSQL server starts with the first test that asks for one;
- without a PostgreSQL server those tests fail, they are never skipped;
- a `req` marker names only clauses that exist.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from holdfast.store import create_store
from tests.support import clauses
from tests.support.postgres import Server, tmpfs_directory
from tests.support.power import STRACE

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As of `make test &`: children would inherit it, and those that are to be interrupted would not be.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: a database on a shared machine is now and then slow, and that is not what these tests look for.
# Function fixtures give a database that a test's examples share on purpose.
settings.register_profile(
    "dev", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.register_profile("prove", settings.get_profile("dev"), max_examples=1000)
settings.load_profile(os.environ.get("HOLDFAST_HYPOTHESIS") or ("ci" if os.environ.get("CI") else "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--conformance",
        metavar="PATH",
        type=Path,
        help="write {clause: [test ids]} of the collected tests to PATH as JSON",
    )


# Long tables of cases: every case runs on SQLite, and one in so many on PostgreSQL too; `make prove` runs them all.
THINNED = {
    "audit/test_tampering.py": 4,
    "audit/test_repair.py": 4,
    "audit/test_check.py": 4,
    "cli/test_at.py": 4,
    "cli/test_explain.py": 2,
    "explain/test_explain.py": 2,
    "nodd/test_checking_corruptions.py": 4,
}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say at the end, where nobody overlooks it, what this machine could not try."""
    if STRACE is None:
        terminalreporter.write_line(
            "NOT TRIED: strace is not installed, so no power cut was rebuilt and no disk made to fail."
            " On Debian: apt-get install strace"
        )


# First, before -m and -k take tests away: the record is of every test collected.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    for item in items:
        file = f"{item.path.parent.name}/{item.path.name}"
        if file in THINNED and "postgres" in getattr(getattr(item, "callspec", None), "id", ""):
            if seen[file] % THINNED[file]:
                item.add_marker(pytest.mark.slow)
            seen[file] += 1
    known = {clause.id for clause in clauses.load()}
    shown: dict[str, list[str]] = {}
    for item in items:
        if "pg_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.pg)
        for clause in dict.fromkeys(str(arg) for marker in item.iter_markers("req") for arg in marker.args):
            if clause not in known:
                raise pytest.UsageError(f"{item.nodeid}: no clause {clause} in tests/support/clauses.toml")
            shown.setdefault(clause, []).append(item.nodeid)
    path: Path | None = config.getoption("--conformance")
    if path is not None:
        path.write_text(json.dumps(shown, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def pg_server() -> Iterator[Server]:
    """The session's PostgreSQL server; a test that stops or kills it must start it again."""
    with Server() as server:
        yield server


@pytest.fixture
def pg_url(pg_server: Server) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, dropped afterwards."""
    pg_server.start()
    url = pg_server.create_database()
    yield url
    pg_server.start()
    pg_server.drop_database(url)


@pytest.fixture
def sqlite_url() -> Iterator[str]:
    """The URL of a SQLite file that does not exist yet, alone in a directory that is removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-sqlite-", dir=tmpfs_directory()))
    yield f"sqlite:///{directory / 'ledger.db'}"
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def empty_url(request: pytest.FixtureRequest) -> str:
    """The URL of a database of each kind in turn that holds no ledger yet."""
    # Requested by name, so that the server starts only for the tests that use it.
    url: str = request.getfixturevalue({"sqlite": "sqlite_url", "postgres": "pg_url"}[request.param])
    return url


# ---------------------------------------------------------------------------------------------------------------------
# Ledgers that are there already: copies of one that was made once and closed, which is several times faster

NEW_ID = "UPDATE holdfast_meta SET value = '{}' WHERE name = 'ledger_id'"


@pytest.fixture(scope="session")
def sqlite_new() -> Iterator[Path]:
    """The SQLite file that new ledgers are copies of."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-new-", dir=tmpfs_directory()))
    create_store(str(directory / "ledger.db")).close()
    yield directory / "ledger.db"
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def pg_new(pg_server: Server) -> Iterator[str]:
    """The PostgreSQL database that new ledgers are copies of."""
    pg_server.start()
    url = pg_server.create_database()
    create_store(url).close()
    yield url.rpartition("/")[2]
    pg_server.start()
    pg_server.drop_database(url)


@pytest.fixture
def new_sqlite_ledger(sqlite_url: str, sqlite_new: Path) -> str:
    """The URL of a new dev ledger on SQLite, with an id of its own."""
    path = sqlite_url.removeprefix("sqlite:///")
    shutil.copy(sqlite_new, path)
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute(NEW_ID.format(uuid4().hex))
    return sqlite_url


@pytest.fixture
def new_postgres_ledger(pg_server: Server, pg_new: str) -> Iterator[str]:
    """The URL of a new dev ledger on PostgreSQL, with an id of its own; dropped afterwards."""
    pg_server.start()
    url = pg_server.create_database(template=pg_new)
    with psycopg.connect(url) as session:
        session.execute(NEW_ID.format(uuid4().hex).encode())
    yield url
    pg_server.start()
    pg_server.drop_database(url)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def ledger_url(request: pytest.FixtureRequest) -> str:
    """The URL of a new dev ledger of each kind in turn."""
    url: str = request.getfixturevalue(f"new_{request.param}_ledger")
    return url
