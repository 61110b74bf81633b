"""Fixtures and options of the whole suite: fresh databases of both kinds, and the record of clauses shown.

Invariants:
- every test gets its own database; the PostgreSQL server starts with the first test that needs one;
- without a PostgreSQL server those tests fail, they are never skipped;
- a `req` marker names only clauses that exist, an `attack` marker only kinds that exist.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import clauses, compared, sessions
from tests.support.attacks import KINDS
from tests.support.browsers import CHROMIUM
from tests.support.ledgers import LedgerIn, copied, forget, new_ledger
from tests.support.pgbouncer import PGBOUNCER
from tests.support.postgres import Server, tmpfs_directory
from tests.support.power import STRACE
from tests.support.promtool import PROMTOOL
from tests.support.thinning import left_out

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in the background (`make test &`) ignores SIGINT, and so would the children that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: a database on a shared machine is slow at times, and these tests do not measure time.
# Forty examples in `make test`, a thousand in `make prove`.
# All examples of one test share the database of its function-scoped fixture on purpose.
settings.register_profile(
    "dev", max_examples=40, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
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
    parser.addoption(
        "--attack",
        metavar="KINDS",
        type=lambda text: frozenset(text.split(",")),
        help="run the attacks of these kinds only, such as sql,files",
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print at the end of a run what this machine could not test."""
    if STRACE is None:
        terminalreporter.write_line(
            "NOT TESTED: strace is not installed, so the tests of power loss and of failing disks did not run."
            " On Debian: apt-get install strace"
        )
    if PGBOUNCER is None:
        terminalreporter.write_line(
            "NOT TESTED: pgbouncer is not installed, so the tests of a ledger behind a real transaction pooler did not"
            " run. On Debian: apt-get install pgbouncer"
        )
    if CHROMIUM is None:
        terminalreporter.write_line(
            "NOT TESTED: chromium is not installed, so the pages of the console were not opened in a browser."
            " On Debian: apt-get install chromium"
        )
    if PROMTOOL is None:
        terminalreporter.write_line(
            "NOT TESTED: promtool is not installed, so metrics and alert rules were not checked by it."
            " On Debian: apt-get install prometheus"
        )
    if not os.environ.get("TLA2TOOLS_JAR"):
        terminalreporter.write_line(
            "NOT TESTED: TLA2TOOLS_JAR names no tla2tools.jar, so TLC did not run specs/; our own checker did."
        )
    if not os.environ.get("HOLDFAST_NOAA_FILES"):
        terminalreporter.write_line(
            "NOT TESTED: HOLDFAST_NOAA_FILES names no directory, so the readers did not see the real files that"
            " tests/nodd/real_files.tsv lists."
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from what is collected, and let it run less often after that.

    What is collected lives as long as the run. By its own thresholds the collector takes a twentieth of the run's CPU.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


# First, before -m and -k take tests away: the record is of every test collected.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in left_out(items):
        item.add_marker(pytest.mark.slow)
    known = {clause.id for clause in clauses.load()}
    shown: dict[str, list[str]] = {}
    for item in items:
        if "pg_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.pg)
        kinds = {str(arg) for marker in item.iter_markers("attack") for arg in marker.args}
        if unknown := kinds - KINDS.keys():
            raise pytest.UsageError(f"{item.nodeid}: unknown kind of attack {min(unknown)}; known: {', '.join(KINDS)}")
        item.user_properties += [("attack", kind) for kind in sorted(kinds)]
        for clause in dict.fromkeys(str(arg) for marker in item.iter_markers("req") for arg in marker.args):
            if clause not in known:
                raise pytest.UsageError(f"{item.nodeid}: no clause {clause} in tests/support/clauses.toml")
            shown.setdefault(clause, []).append(item.nodeid)
    wanted: frozenset[str] | None = config.getoption("--attack")
    if wanted is not None:
        items[:] = [
            item for item in items if wanted & {value for name, value in item.user_properties if name == "attack"}
        ]
    path: Path | None = config.getoption("--conformance")
    if path is not None:
        path.write_text(json.dumps(shown, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def _made_and_compared_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """New SQLite ledgers are copies; on PostgreSQL, equal catalogues are verified once, and sessions are kept."""
    with copied(request.node.nodeid), compared.once(request.node.nodeid), sessions.kept(request.node.nodeid):
        yield


@pytest.fixture(scope="session")
def pg_server() -> Iterator[Server]:
    """The session's PostgreSQL server; fixtures start it again after a test that stopped it."""
    # Else the server starts a process each second, for one of some hundred databases.
    with Server(settings={"autovacuum": "off"}) as server:
        yield server
        forget(server)


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
# New ledgers are copies: on PostgreSQL that saves 100 ms of CPU a test


@pytest.fixture
def new_sqlite_ledger(sqlite_url: str) -> str:
    """The URL of a new dev ledger on SQLite, with an id of its own."""
    new_ledger().to_file(sqlite_url)
    return sqlite_url


@pytest.fixture
def new_postgres_ledger(pg_server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a ledger on PostgreSQL that is as a new dev ledger."""
    with new_ledger().on(pg_server, request.node.nodeid) as (url, _):
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def ledger_in(request: pytest.FixtureRequest) -> Iterator[LedgerIn]:
    """What makes the one ledger of a test and returns its URL: new, of an environment, of each kind in turn."""
    with ExitStack() as used:

        def made(environment: str, *, governed: bool = False) -> str:
            return used.enter_context(new_ledger(environment, governed=governed).each(request))[0]

        yield made


@pytest.fixture
def stage_url(ledger_in: LedgerIn) -> str:
    """The URL of a new stage ledger of each kind in turn."""
    return ledger_in("stage")


@pytest.fixture
def prod_url(ledger_in: LedgerIn) -> str:
    """The URL of a new prod ledger of each kind in turn."""
    return ledger_in("prod")


@pytest.fixture
def governed_url(ledger_in: LedgerIn) -> str:
    """The URL of a new dev ledger that is governed, of each kind in turn."""
    return ledger_in("dev", governed=True)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def ledger_url(request: pytest.FixtureRequest) -> str:
    """The URL of a new dev ledger of each kind in turn."""
    url: str = request.getfixturevalue(f"new_{request.param}_ledger")
    return url
