"""Whatever a handler does, its job ends with a typed, recorded failure, and the worker lives on."""

from __future__ import annotations

import io
import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from string import ascii_letters, digits
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast import Execution, Ledger, Operations
from holdfast.core.errors import RefusedByDatabaseError, StoreBusyError
from holdfast.core.machines import JobState
from holdfast.core.redaction import MESSAGE_MAX, redacted
from holdfast.engine.error_texts import error_code, error_message
from holdfast.engine.tasks import EndTask, Task
from holdfast.engine.worker import raised
from holdfast.store.sqlite import store as sqlite_store
from holdfast.testing import VirtualClock, drain, virtual_world
from tests.engine import handlers
from tests.engine.database import Database
from tests.engine.working import drained, ended, excuses

pytestmark = pytest.mark.attack("faults")

MASK = "***"
UNSTORABLE = "What the handler returned or staged cannot be stored: "


@pytest.fixture
def live(ledger_url: str) -> Iterator[Ledger]:
    """A ledger on the real clock, with all the handlers and room for more."""
    with Ledger(ledger_url, handlers.some()) as ledger:
        yield ledger


@pytest.fixture
def thumbs(database: Database) -> Database:
    database.run("CREATE TABLE thumbs (path TEXT NOT NULL)")
    return database


def all_bad_then_good(ledger: Ledger, executor: Any) -> dict[str, tuple[str, str | None, str | None]]:
    """Run every bad handler, with a good one after each, in a single slot; return how the bad ones ended."""
    bad, good = {}, []
    for name in handlers.ENDS:
        bad[name] = ledger.submit(name).job_id
        good.append(ledger.submit("good").job_id)
    drained(ledger, executor=executor)
    assert {ledger.job(job_id).state for job_id in good} == {JobState.SUCCEEDED}
    return {name: ended(ledger.job(job_id)) for name, job_id in bad.items()}


def as_listed(found: dict[str, tuple[str, str | None, str | None]]) -> dict[str, tuple[str, str | None, str | None]]:
    """Keep only the type of the error where an effect was refused: the words differ by database.

    Drop what is said of a value that no statement of the handler refused: a child refuses a staged call at once.
    """
    listed = {}
    for name, (state, code, message) in found.items():
        refused = (message or "").partition(": ")[0] == handlers.EFFECT
        listed[name] = state, code, handlers.EFFECT if refused else message and message.removeprefix(UNSTORABLE)
    return listed


@pytest.mark.req("M-11", "G-07")
@pytest.mark.parametrize("kind", ["threads", "processes", "executor"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_every_bad_handler_ends_as_listed_and_the_slot_continues(
    live: Ledger, thumbs: Database, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # a handler closes it
    with ThreadPoolExecutor(1) as pool:
        found = all_bad_then_good(live, pool if kind == "executor" else kind)
    assert as_listed(found) == handlers.ENDS
    assert {name for name, (_, _, text) in found.items() if (text or "").startswith(UNSTORABLE)} >= {
        name
        for name, (_, code, _) in handlers.ENDS.items()
        if name.startswith("returns_") and code in raised.UNSTORABLE
    }
    assert thumbs.run("SELECT path FROM thumbs") == [("by the parent",)]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_handler_that_forks_ends_quietly_and_is_no_worker(live: Ledger, thumbs: Database) -> None:
    returned, raised = live.submit("forks"), live.submit("forks_and_raises")
    drained(live)
    assert live.receipt(returned.job_id).result == {"fork_exit": 0}
    assert live.receipt(raised.job_id).result == {"fork_exit": 0}
    assert thumbs.run("SELECT path FROM thumbs") == [("by the parent",)]
    assert live.job(returned.job_id).attempts == 1


def test_a_statement_that_breaks_the_transaction_fails_only_its_own_job(live: Ledger, thumbs: Database) -> None:
    breaking = "SELECT 1/0" if thumbs.is_postgres else "INSERT OR ROLLBACK INTO thumbs VALUES (NULL)"

    @live.operation(max_attempts=1)
    def breaks(run: Execution) -> None:
        run.effect("INSERT INTO thumbs VALUES ('by a job that fails')")
        run.effect(breaking)

    @live.operation()
    def inserts(run: Execution, path: str) -> None:
        run.effect("INSERT INTO thumbs VALUES (:path)", {"path": path})

    jobs = [live.submit(inserts.call(path="a")), live.submit(breaks.call()), live.submit(inserts.call(path="b"))]
    drained(live, concurrency=3)
    states = [ended(live.job(job.job_id))[:2] for job in jobs]
    assert states == [("succeeded", None), ("failed", "effect_failed"), ("succeeded", None)]
    assert sorted(thumbs.run("SELECT path FROM thumbs")) == [("a",), ("b",)]


def test_arguments_that_no_longer_fit_go_to_quarantine(ledger_url: str) -> None:
    before, after = Operations(), Operations()

    @before.operation("resize")
    def resize_was(run: Execution, width: int) -> None:
        """Take a number."""

    @after.operation("resize")
    def resize_is(run: Execution, size: str) -> None:
        """Take a text under another name."""

    with Ledger(ledger_url, before) as ledger:
        job_id = ledger.submit(resize_was.call(width=64)).job_id
    with Ledger(ledger_url, after) as ledger:
        good = ledger.submit(resize_is.call(size="64x64")).job_id
        drained(ledger)
        job = ledger.job(job_id)
        assert ended(job)[:2] == ("quarantined", "arguments_invalid")
        assert job.quarantine_code == "arguments_invalid"
        assert job.last_error_message is not None
        assert job.last_error_message.startswith("ArgumentsError: resize: ")
        assert ledger.job(good).state is JobState.SUCCEEDED


@pytest.mark.req("M-09")
def test_a_job_whose_handler_is_missing_here_is_left_to_a_worker_that_knows_it(
    ledger: Ledger, ledger_url: str, clock: VirtualClock
) -> None:
    @ledger.operation("known.here")
    def known_here(run: Execution) -> str:
        return "done"

    job_id = ledger.submit(known_here.call()).job_id
    with Ledger(ledger_url, world=ledger.world) as ignorant:
        good = ignorant.submit("noop").job_id
        assert drained(ignorant, executor="inline").recycle is False
        assert ignorant.job(good).state is JobState.SUCCEEDED
        job = ignorant.job(job_id)
    assert (job.state, job.attempts, job.excused, job.spent) == (JobState.PENDING, 1, 1, 0)
    assert job.run_at == clock.after(5)
    assert excuses(ledger, job_id) == ["handler_missing"]
    drained(ledger, executor="inline")
    assert ledger.job(job_id).state is JobState.PENDING  # not due yet
    clock.advance(5)
    drained(ledger, executor="inline")
    job = ledger.job(job_id)
    assert (job.state, job.attempts, job.spent, job.result) == (JobState.SUCCEEDED, 2, 1, '"done"')


def test_each_effect_keeps_the_parameters_it_was_staged_with(live: Ledger, thumbs: Database) -> None:
    @live.operation()
    def fills(run: Execution) -> None:
        row = {"path": ""}
        for path in "abc":
            row["path"] = path
            run.effect("INSERT INTO thumbs (path) VALUES (:path)", row)

    live.submit(fills.call())
    drained(live)
    assert thumbs.run("SELECT path FROM thumbs ORDER BY path") == [("a",), ("b",), ("c",)]


def test_a_completion_in_a_transaction_that_was_rolled_back_is_a_failure_at_once(
    live: Ledger, database: Database
) -> None:
    @live.operation(max_attempts=1)
    def rolls_back(run: Execution) -> None:
        connection = database.connect()
        connection.execute("BEGIN" if database.is_postgres else "BEGIN IMMEDIATE")
        run.commit(connection=connection, result=1)
        connection.execute("ROLLBACK")
        connection.close()

    job_id = live.submit(rolls_back.call()).job_id
    drained(live)
    assert ended(live.job(job_id)) == (
        "failed",
        "commit_missing",
        "run.commit was called, but its transaction was not committed",
    )


def test_an_end_that_the_ledger_refuses_for_good_is_dropped_and_the_worker_continues(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky(Ledger):
        def perform_tasks(self, tasks: Any) -> None:
            picked: list[Task[Any]] = []
            for task in tasks:
                if isinstance(task, EndTask) and task.attempt.job.operation == "unlucky":
                    task.error = RefusedByDatabaseError("not this one")
                else:
                    picked.append(task)
            super().perform_tasks(picked)

    with Picky(sqlite_url) as ledger:

        @ledger.operation()
        def unlucky(run: Execution) -> None:
            """Return."""

        job_id = ledger.submit(unlucky.call()).job_id
        good = ledger.submit("noop").job_id
        drained(ledger)
        assert ledger.job(good).state is JobState.SUCCEEDED
        assert ledger.job(job_id).state is JobState.RUNNING  # until its lease runs out
    assert f"job {job_id}: the end of its attempt cannot be written: not this one" in caplog.text


# -- what is kept of an error -----------------------------------------------------------------------------------------

secrets = st.text(ascii_letters + digits, min_size=8, max_size=40)
chatter = st.text("connect to host, (refused); tried 3 times/é…\n\t\0", max_size=40)
FORMS = (
    "password={}", "PASSWORD: {}", "PGPASSWORD={}", "db_password = '{}'", "{{'password': '{}'}}", '{{"secret": "{}"}}',
    "client_secret={}&x=1", "api-key: {}", "x-api-key={}", "aws_secret_access_key={}", "token={}", "refresh_token={};",
    "Authorization: Bearer {}", "authorization=Basic {}", "got bearer {}", "postgresql://app:{}@db/x",
    "redis://:{}@cache:6379/0", "amqp://u:{}@ss@host", "https://user:{}/x@host/path", "credentials: {}", "passwd={}",
    "passphrase: '{}'", 'private_key="{}"',
)  # fmt: skip


@given(form=st.sampled_from(FORMS), secret=secrets, before=chatter, after=chatter)
def test_a_secret_is_removed_from_every_message(form: str, secret: str, before: str, after: str) -> None:
    assume(secret not in before and secret not in after)
    planted = f"{before} {form.format(secret)} {after}"
    kept = redacted(planted)
    assert secret not in kept
    assert MASK in kept
    assert error_message(ConnectionError(planted)) == redacted(f"ConnectionError: {planted}")


@given(st.text(max_size=2000))
def test_a_stored_message_is_one_short_printable_line(text: str) -> None:
    kept = redacted(text)
    assert len(kept) <= MESSAGE_MAX
    assert kept.isprintable()
    assert kept.encode().decode() == kept


# A word of 40 letters and digits may be a secret key.
@given(st.lists(st.text(ascii_letters + digits, min_size=1, max_size=30), max_size=15))
def test_words_that_are_not_secrets_stay(words: list[str]) -> None:
    assert redacted(" ".join(words)) == " ".join(words)


def test_a_message_of_megabytes_is_redacted_quickly() -> None:
    assert redacted("token" * 1_000_000).startswith("tokentoken")


@pytest.mark.parametrize(
    "error, code",
    [
        (ValueError("x"), "value_error"),
        (SystemExit("fatal"), "system_exit"),
        (RefusedByDatabaseError("x"), "refused_by_database"),
        (type("HTTPError", (Exception,), {})(), "http_error"),
        (type("X" * 100, (Exception,), {})(), "x" * 64),
        (type("Coded", (Exception,), {"code": "its_own"})(), "its_own"),
        (type("Loud", (Exception,), {"code": "NOT A CODE"})(), "loud"),
    ],
)
def test_an_error_has_a_short_stable_code(error: BaseException, code: str) -> None:
    assert error_code(error) == code


# -- transactions that a handler leaves open --------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["raises", "returns"])
def test_a_transaction_that_a_handler_left_open_with_its_completion_in_it_is_rolled_back(
    live: Ledger, thumbs: Database, then: str
) -> None:
    """Its locks would keep the worker from writing how the attempt ended, for ever."""
    session = thumbs.connect() if thumbs.is_postgres else sqlite3.connect(thumbs.path, isolation_level=None)

    @live.operation("leaves_open", max_attempts=1)
    def leaves_open(run: Execution) -> None:
        nonlocal session
        if not thumbs.is_postgres:
            session = sqlite3.connect(thumbs.path, isolation_level=None)  # used by one thread only
            session.execute("PRAGMA synchronous = FULL")
        session.execute("BEGIN" if thumbs.is_postgres else "BEGIN IMMEDIATE")
        session.execute("INSERT INTO thumbs (path) VALUES ('left')")
        run.commit(connection=session)
        if then == "raises":
            raise ValueError("inside the transaction")

    left, good = live.submit(leaves_open.call()).job_id, live.submit("good").job_id
    drained(live)
    code = "value_error" if then == "raises" else "commit_missing"
    assert ended(live.job(left))[:2] == ("failed", code)
    assert live.job(good).state is JobState.SUCCEEDED
    assert thumbs.run("SELECT path FROM thumbs") == []
    if thumbs.is_postgres:
        session.close()


def test_drain_raises_if_a_handler_holds_the_write_lock_in_a_transaction_that_it_left_open(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of the application that the ledger does not know: in one thread, waiting for it would never end."""
    monkeypatch.setattr(sqlite_store, "BUSY_S", 0.1)
    session = sqlite3.connect(Database(sqlite_url).path, isolation_level=None)
    with Ledger(sqlite_url, world=virtual_world()) as ledger:

        @ledger.operation("leaves_open")
        def leaves_open(run: Execution) -> None:
            session.execute("BEGIN IMMEDIATE")
            raise ValueError("inside the transaction")

        job_id = ledger.submit(leaves_open.call()).job_id
        with pytest.raises(StoreBusyError):
            drain(ledger)
        session.rollback()
        assert ledger.job(job_id).state is JobState.RUNNING  # until its lease expires, as after a crash
    session.close()
