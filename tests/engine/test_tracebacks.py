"""Where a handler failed: kept on the attempt, redacted and bounded, shown to people, and never part of the history."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast import Execution, Ledger, Snooze
from holdfast.audit.files.snapshot import create
from holdfast.audit.seals.sealer import seal
from holdfast.core.frames import where
from holdfast.engine.upkeep.retention import Retention, gc
from holdfast.explain.explain import explain
from holdfast.store.verbs.tracebacks import TRACEBACK_MAX, tracebacks_of
from holdfast.testing import VirtualClock, drain
from tests.engine.working import drained

SECRET = "hunter2-of-the-test"  # noqa: S105 - it must not be found again


class MarkerOfTheFrame(ValueError):
    """An error whose name is in the kept text."""


def fail_deep_inside(password: str, depth: int = 0) -> None:
    if depth:
        fail_deep_inside(password, depth - 1)
    raise MarkerOfTheFrame(f"no good: password={password}")


def tracebacks(ledger: Ledger, job_id: int) -> dict[int, str]:
    with ledger.store.reading() as reading:
        return tracebacks_of(reading, job_id)


@pytest.fixture
def failing(ledger: Ledger) -> Ledger:
    @ledger.operation("fail", max_attempts=2)
    def fail(run: Execution, depth: int = 0) -> None:
        try:
            json.loads("{")
        except ValueError:
            fail_deep_inside(SECRET, depth)

    return ledger


def test_each_failed_attempt_keeps_where_it_failed(failing: Ledger, clock: VirtualClock) -> None:
    job_id = failing.submit("fail").job_id
    drain(failing, until=clock.after(3600))
    found = tracebacks(failing, job_id)
    assert sorted(found) == [1, 2]
    for text in found.values():
        assert "in fail_deep_inside" in text
        assert "JSONDecodeError" in text  # what was being handled
        assert text.splitlines()[-1].startswith("MarkerOfTheFrame: no good")
        assert "engine/worker" not in text  # the frames of the ledger itself do not help
        assert SECRET not in text
        place = where(text)
        assert place is not None
        assert (Path(place.file).name, place.function) == ("test_tracebacks.py", "fail_deep_inside")
        source = Path(__file__).read_text().splitlines()[place.line - 1]
        assert "raise MarkerOfTheFrame" in source


def test_a_deep_recursion_is_cut(failing: Ledger) -> None:
    job_id = failing.submit("fail", {"depth": 400}).job_id
    drain(failing)
    [text] = tracebacks(failing, job_id).values()
    assert len(text) <= TRACEBACK_MAX
    assert "in fail\n" in text  # where it began
    place = where(text)
    assert place is not None
    assert place.function == "fail_deep_inside"


def test_an_end_that_is_no_failure_keeps_no_traceback(ledger: Ledger) -> None:
    @ledger.operation("later")
    def later(run: Execution) -> None:
        if run.attempt == 1:
            raise Snooze(1)

    @ledger.operation("quick", timeout_s=0.05)
    def quick(run: Execution) -> None: ...

    ids = [ledger.submit("later").job_id, ledger.submit("quick").job_id]
    drain(ledger)
    assert [tracebacks(ledger, job_id) for job_id in ids] == [{}, {}]


@pytest.mark.parametrize("of", ["ledger", "operation"])
def test_tracebacks_can_be_switched_off(ledger_url: str, of: str) -> None:
    with Ledger(ledger_url, tracebacks=of != "ledger") as ledger:

        @ledger.operation("fail", max_attempts=1, tracebacks=of != "operation")
        def fail(run: Execution) -> None:
            fail_deep_inside(SECRET)

        @ledger.operation("other", max_attempts=1)
        def other(run: Execution) -> None:
            fail_deep_inside(SECRET)

        ids = [ledger.submit("fail").job_id, ledger.submit("other").job_id]
        ledger.run_until_idle()
        kept = [bool(tracebacks(ledger, job_id)) for job_id in ids]
        assert kept == [False, of == "operation"]


def test_coroutines_and_processes_keep_tracebacks_too(ledger_url: str) -> None:
    from tests.engine import handlers

    with Ledger(ledger_url) as ledger:

        @ledger.operation("fail", max_attempts=1)
        async def fail(run: Execution) -> None:
            await asyncio.sleep(0)
            fail_deep_inside(SECRET)

        job_id = ledger.submit("fail").job_id
        drained(ledger)
        assert "in fail_deep_inside" in tracebacks(ledger, job_id)[1]
    with Ledger(ledger_url, handlers.operations) as ledger:
        elsewhere = ledger.submit("raises_value_error").job_id
        drained(ledger, executor="processes")
        assert "in raises_value_error" in tracebacks(ledger, elsewhere)[1]


def test_an_exception_that_cannot_be_looked_at_fails_its_job_all_the_same(ledger: Ledger) -> None:
    class Hostile(Exception):
        @property
        def __cause__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("do not look")

        def __str__(self) -> str:
            raise RuntimeError("do not read")

    @ledger.operation("fail", max_attempts=1)
    def fail(run: Execution) -> None:
        raise Hostile

    job_id = ledger.submit("fail").job_id
    drain(ledger)
    assert ledger.job(job_id).state == "failed"


@pytest.mark.req("K-05")
def test_no_traceback_is_part_of_the_history(failing: Ledger, clock: VirtualClock, tmp_path: Path) -> None:
    job_id = failing.submit("fail").job_id
    drain(failing, until=clock.after(3600))
    assert tracebacks(failing, job_id)
    with failing.store.reading() as reading:
        rows: list[object] = [*reading.journal.of(job_id), *reading.journal.of_executions(job_id)]
        rows += reading.lists.executions(job_id)
    assert "fail_deep_inside" not in repr(rows)
    file = tmp_path / "snapshot.jsonl"
    create(failing.store, file)
    assert b"fail_deep_inside" not in gzip.decompress(file.read_bytes())


@pytest.mark.req("K-05")
def test_no_traceback_is_in_an_archive(failing: Ledger, clock: VirtualClock, tmp_path: Path) -> None:
    """The archive has the failed attempts and their errors, and no line of the code."""

    @failing.operation("second", max_attempts=3)
    def second(run: Execution) -> None:
        if run.attempt == 1:
            fail_deep_inside(SECRET)

    job_id = failing.submit("second").job_id
    drain(failing, until=clock.after(3600))
    assert tracebacks(failing, job_id)
    seal(failing.store)
    clock.advance(90 * 86400)
    report = gc(failing.store, Retention(finished_s=1, history_s=1, archive_dir=str(tmp_path)), who="ann")
    [archive] = report.archives
    content = gzip.decompress((tmp_path / archive.file).read_bytes())
    assert b"MarkerOfTheFrame" in content
    assert b"fail_deep_inside" not in content
    assert SECRET.encode() not in content


def test_retention_deletes_the_traceback_with_the_payload(failing: Ledger, clock: VirtualClock) -> None:
    @failing.operation("second", max_attempts=3)
    def second(run: Execution) -> None:
        if run.attempt == 1:
            fail_deep_inside(SECRET)

    job_id = failing.submit("second").job_id
    drain(failing, until=clock.after(3600))
    assert failing.job(job_id).state == "succeeded"
    assert tracebacks(failing, job_id)
    clock.advance(90 * 86400)
    gc(failing.store, Retention(finished_s=1), who="ann")
    assert failing.job(job_id).slimmed
    assert tracebacks(failing, job_id) == {}


def test_one_line_is_logged_for_a_failure(
    failing: Ledger, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = failing.submit("fail").job_id
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        drain(failing, until=clock.after(3600))
    records = [vars(record) for record in caplog.records if f"job {job_id}" in record.getMessage()]
    fields = ("job_id", "operation", "attempt", "error_code")
    assert [tuple(record[name] for name in fields) for record in records] == [
        (job_id, "fail", attempt, "marker_of_the_frame") for attempt in (1, 2)
    ]
    lines = [record["message"] for record in records]
    for line in lines:
        assert "\n" not in line
        assert "test_tracebacks.py:" in line
        assert "MarkerOfTheFrame" in line
        assert SECRET not in line


def test_explain_names_the_line_that_failed(failing: Ledger, clock: VirtualClock) -> None:
    job_id = failing.submit("fail").job_id
    drain(failing)
    for state in ("pending", "failed"):
        with failing.store.reading() as reading:
            explained = explain(reading, job_id, failing.store.now())
        assert explained.state == state
        evidence = [finding.evidence["where"] for finding in explained.findings if "where" in finding.evidence]
        assert evidence
        for found in evidence:
            assert isinstance(found, str)
            assert "test_tracebacks.py:" in found
        drain(failing, until=clock.after(3600))
