"""A stored error is one short line without secrets and stack traces, on every path into the ledger."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from holdfast import Cancel, Execution, Ledger, Quarantine, RetryAfter, Snooze
from holdfast.audit.check.runner import check
from holdfast.compat import Boundary, IdempotentJobQueue, IngestionJob, JobStatus, Wal, WalEntry
from holdfast.core import commands
from holdfast.core.errors import InputError
from holdfast.core.redaction import LEFT_OUT, MESSAGE_MAX, redacted
from holdfast.governance.quarantine import add
from holdfast.store import Lease
from holdfast.testing import VirtualClock
from tests.engine.database import Database

pytestmark = pytest.mark.attack("input")

MARK = "Traceback (most recent call last)"
HIDDEN = "hunter2hunter2"
FRAMES = '  File "/srv/app.py", line 3, in main\n    work()\n  File "/srv/work.py", line 9, in work\n    raise oh\n'
TRACE = f"{MARK}:\n{FRAMES}ValueError: no rows\n"

handler_raises: dict[str, Callable[[str], BaseException]] = {
    "an error": RuntimeError,
    "an error of ours": InputError,
    "retry after": lambda text: RetryAfter(60, text),
    "quarantine": lambda text: Quarantine("bad", text),
    "a reason for quarantine": Quarantine,
    "cancel": Cancel,
    "snooze": lambda text: Snooze(60, text),
    "exit": SystemExit,
}


class Ways:
    """Every way in which the text of an error gets into a ledger."""

    def __init__(self, ledger: Ledger, url: str, clock: VirtualClock) -> None:
        self.ledger = ledger
        self.text = ""
        self.wal = Wal(ledger)
        self.queue = IdempotentJobQueue(url, clock=clock)

        @ledger.operation("raises")
        def raises(run: Execution, how: str) -> None:
            raise handler_raises[how](self.text)

        @ledger.operation("raises_async")
        async def raises_async(run: Execution, how: str) -> None:
            raise handler_raises[how](self.text)

        self.handlers = raises, raises_async

    def take_all(self, text: str) -> None:
        self.text = text
        for handler in self.handlers:
            for how in handler_raises:
                self.ledger.submit(handler.call(how=how))
        self.ledger.run_until_idle()
        for rule in self.rulings():
            rule(self.ledger.submit("noop").job_id)
        self.through_the_log()
        self.through_the_queue()
        self.through_the_store()

    def rulings(self) -> Iterator[Callable[[int], object]]:
        ledger, text = self.ledger, self.text
        yield lambda job_id: ledger.quarantine(job_id, "bad", reason=text)
        yield lambda job_id: ledger.rule(ledger.job(job_id), commands.Quarantine("bad", text), actor="ops")
        if redacted(text):  # without a reason it is refused
            yield lambda job_id: add(ledger.store, job_id, "bad", operator="ops", reason=text)

    def through_the_log(self) -> None:
        def fails(_entry: WalEntry, _boundary: Boundary) -> None:
            raise RuntimeError(self.text)

        self.wal.fail(self.wal.append("c", "Create", b""), self.text)
        self.wal.execute(self.wal.append("c", "Create", b""), fails)
        self.wal.append("c", "Create", b"")
        self.wal.recover(fails)

    def through_the_queue(self) -> None:
        failed, put_away = uuid4().hex, uuid4().hex
        for job_id in (failed, put_away):
            self.queue.enqueue(IngestionJob(job_id, "local_files", {}))
        self.queue.mark_running(failed)
        self.queue.mark_failed(failed, error_code=self.text, error_message=self.text)
        self.queue.mark_quarantined(put_away, code=self.text or "bad", message=self.text)
        assert self.queue.get_job(failed)["status"] is JobStatus.FAILED

    def through_the_store(self) -> None:
        fail: list[Callable[[int], object]] = [
            lambda token: commands.Fail(token, "bad", self.text, permanent=True),
            lambda token: commands.GiveBack(token, self.ledger.store.now(), "bad", self.text),
        ]
        for command in fail:
            job_id = self.ledger.submit("noop").job_id
            with self.ledger.store.transaction() as transaction:
                [attempt] = transaction.executions.claim_these([job_id], Lease(owner="w", seconds=60))
                transaction.executions.move([(attempt, command(attempt.execution.lease_token))], actor="w")
                if isinstance(command(1), commands.GiveBack):
                    transaction.rulings.rule([(transaction.jobs.get(job_id), commands.Cancel())], actor="ops")


@pytest.fixture
def ways(ledger: Ledger, ledger_url: str, clock: VirtualClock) -> Iterator[Ways]:
    ways = Ways(ledger, ledger_url, clock)
    yield ways
    ways.queue.close()


def written(database: Database) -> set[Any]:
    """Return every code and message that the ledger holds."""
    of_jobs = database.run("SELECT last_error_code, last_error_message, quarantine_code FROM holdfast_jobs")
    of_executions = database.run("SELECT error_code, error_message FROM holdfast_executions")
    return {text for row in [*of_jobs, *of_executions] for text in row if text is not None}


def assert_fit(ways: Ways, database: Database) -> None:
    texts = written(database)
    assert [text for text in texts if MARK in text or HIDDEN in text or not text.isprintable()] == []
    assert max(map(len, texts)) <= MESSAGE_MAX
    assert check(ways.ledger.store).violations == ()


TEXTS = {
    "a stack trace": f"the tool failed:\n{TRACE}",
    "one that is printed as bytes": f"the tool failed: {TRACE.encode()!r}",
    "one on one line": f"the tool failed: {TRACE}".replace("\n", " "),
    "one of spaces": MARK.replace(" ", "\0\n "),
    "one that does not end": f"{MARK}:\n" + FRAMES * 1000,
    "a secret after it": f"{TRACE} password={HIDDEN}",
    "a secret in it": f'{MARK}:\n  File "x", line 1, in f\n    connect(password="{HIDDEN}")\nOSError: no',
    "very long": "x" * 100_000,
    "nothing": "",
    "what no database keeps": "\0 \ud800",
}


@pytest.mark.req("K-05", "K-13")
@pytest.mark.parametrize("name", TEXTS)
def test_an_error_is_redacted_and_short_on_every_path(ways: Ways, database: Database, name: str) -> None:
    ways.take_all(TEXTS[name])
    assert_fit(ways, database)


pieces = st.sampled_from([MARK, TRACE, FRAMES, "\n", f" token={HIDDEN} ", "  + Exception Group ", "\\n"])


@pytest.mark.req("K-05", "K-13")
@settings(
    max_examples=settings().max_examples // 8,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a ledger that keeps rows makes shrinking slow
)
@given(text=st.lists(pieces | st.text(max_size=20), max_size=8).map("".join))
def test_any_text_is_redacted_and_short_on_every_path(ways: Ways, database: Database, text: str) -> None:
    ways.take_all(text)
    assert_fit(ways, database)


# -- what is left of a stack trace ------------------------------------------------------------------------------------


def printed(error: BaseException) -> str:
    """Return what Python prints of an error that was raised."""
    try:
        raise error
    except BaseException as raised:  # noqa: BLE001 - groups too
        return "".join(traceback.format_exception(raised))


def because(error: BaseException, cause: BaseException) -> BaseException:
    """Return an error that another led to, which was raised."""
    printed(cause)
    error.__cause__ = cause
    return error


CHAIN = printed(because(ValueError("first line\nsecond line"), KeyError("a")))
GROUP = printed(ExceptionGroup("two", [ValueError("one"), TypeError("another")]))
SYNTAX = printed(SyntaxError("invalid syntax", ("x.py", 1, 3, "a b", 1, 4)))
JAVA = (
    'Exception in thread "main" java.lang.IllegalStateException: no rows\n'
    "\tat com.example.Work.run(Work.java:9)\n\tat com.example.Main.main(Main.java:3)\n"
)
NODE = (
    "Error: no rows\n    at Object.<anonymous> (/srv/app.js:10:15)\n    at node:internal/main/run_main_module:23:47\n"
)


@pytest.mark.req("K-05")
@pytest.mark.parametrize(
    "text, kept",
    [
        (TRACE, "ValueError: no rows"),
        (f"exit 1:\n{TRACE}see the log", "exit 1: ValueError: no rows see the log"),
        (f"exit 1: {TRACE.encode()!r}", "exit 1: b' ValueError: no rows '"),
        (CHAIN, "ValueError: first line second line"),
        (GROUP, "ExceptionGroup: two (2 sub-exceptions) ValueError: one TypeError: another"),
        (SYNTAX, "SyntaxError: invalid syntax"),
        (f"exit 1: {FRAMES}ValueError: no rows", "exit 1: ValueError: no rows"),
        (f"exit 1:\n{FRAMES}ValueError: no rows", "exit 1: ValueError: no rows"),
        (JAVA, 'Exception in thread "main" java.lang.IllegalStateException: no rows'),
        (NODE, "Error: no rows"),
        (f"exit 1: {TRACE}".replace("\n", " "), f"exit 1: {LEFT_OUT}"),
        (f"exit 1:\n{MARK}:\n{FRAMES}", f"exit 1: {LEFT_OUT}"),
        (f"exit 1:\n{MARK}:\n" + FRAMES * 1000 + "ValueError: no rows", f"exit 1: {LEFT_OUT}"),
        (f"it printed {MARK}, twice", f"it printed {LEFT_OUT}, twice"),
        ("a\n  b\n    at noon\n    File 3", "a b at noon File 3"),
    ],
)
def test_of_a_stack_trace_only_its_last_line_is_kept(text: str, kept: str) -> None:
    assert redacted(text) == kept
    assert redacted(kept) == kept


@pytest.mark.parametrize(
    "text",
    [
        f"{MARK}\n" * 100_000,
        "\n" * 1_000_000,
        "Traceback " * 100_000,
        " " * 1_000_000,
        FRAMES * 100_000,
        "+ " * 500_000,
    ],
)
def test_a_text_of_megabytes_is_shortened_quickly(text: str) -> None:
    assert len(redacted(text)) <= MESSAGE_MAX
