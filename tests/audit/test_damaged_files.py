"""Damaged pages and truncated files: a typed error that says what to restore, or a right answer; never a crash.

Invariants: every case is a real file, damaged as a disk or a careless copy would; the damage is printed with its seed,
so that a failure can be made again.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.audit.check.findings import CheckReport
from holdfast.audit.check.runner import check
from holdfast.core.commands import Complete
from holdfast.core.errors import HoldfastError, NotALedgerError, StoreDamagedError, StoreError
from holdfast.store import Lease, Submission, connect, open_store
from holdfast.testing import VirtualClock
from tests.audit.rich import Rich
from tests.cli.commands import holdfast, process
from tests.support.postgres import Server

pytestmark = pytest.mark.attack("files")

SEED = 20261115
PAGE = 4096
HOWS = ("flip", "flip", "flip", "bytes", "garbage", "zeros", "cut")
# The columns of a job that a check can verify: a result has no digest, and a slimmed job has no payload.
FACTS = (
    "SELECT j.job_id, j.operation, c.client, c.key, j.state, j.version, j.attempts, j.excused, c.payload,"
    " CASE WHEN c.payload IS NOT NULL THEN c.digest END"
    " FROM holdfast_jobs j JOIN holdfast_calls c ON c.job_id = j.job_id"
)


def damaged(whole: bytes, chance: random.Random) -> tuple[bytes, str]:
    """Return a file with one thing wrong, and what that is."""
    how, at = chance.choice(HOWS), chance.randrange(len(whole))
    page = at // PAGE * PAGE
    data = bytearray(whole)
    if how == "flip":
        data[at] ^= 1 << chance.randrange(8)
    elif how == "bytes":
        end = min(at + chance.randrange(1, 64), len(data))
        data[at:end] = chance.randbytes(end - at)
    elif how == "cut":
        del data[at:]
    else:
        data[page : page + PAGE] = chance.randbytes(PAGE) if how == "garbage" else bytes(PAGE)
    return bytes(data), f"{how} at {at}"


def facts_of(path: Path) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(FACTS).fetchall()
    finally:
        connection.close()


def look(path: Path, clock: VirtualClock) -> None:
    """Open the ledger, and read everything that commands read."""
    with open_store(str(path), clock) as store, store.reading() as reading:
        jobs = reading.lists.jobs(limit=1000)
        reading.counts.current()
        reading.settings.read()
        reading.operations.declared()
        reading.lists.stalled()
        reading.lists.workers()
        for job in jobs:
            reading.lists.executions(job.job_id)
            reading.journal.of(job.job_id)
            reading.journal.of_executions(job.job_id)
            reading.notes.checkpoints(job.job_id)


def write(path: Path, clock: VirtualClock) -> None:
    """Open the ledger, submit to it and work on it."""
    with open_store(str(path), clock) as store:
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}", key="new")])
        with store.transaction() as transaction:
            for attempt in transaction.executions.claim(Lease(owner="worker", seconds=10, n=3)):
                transaction.executions.move([(attempt, Complete(attempt.execution.lease_token, "1"))], actor="worker")
            transaction.counts.fold()


def judged(path: Path, clock: VirtualClock) -> CheckReport:
    with connect(str(path), clock) as store:
        return check(store)


class Bench:
    """A directory where one damaged file after the other is tried."""

    def __init__(self, whole: Path, directory: Path) -> None:
        self.clock = VirtualClock()
        self.clock.advance(600)
        self.whole = whole.read_bytes()
        self.facts = facts_of(whole)
        self.path = directory / "ledger.db"
        self.outcomes: Counter[str] = Counter()

    def put(self, data: bytes) -> Path:
        for beside in self.path.parent.iterdir():
            beside.unlink()
        self.path.write_bytes(data)
        return self.path

    def attempt(self, act: Callable[[Path, VirtualClock], Any], data: bytes) -> Any:
        """Do something to a damaged file; anything but an answer or an error of Holdfast fails the test."""
        try:
            answer = act(self.put(data), self.clock)
        except HoldfastError as error:
            refused = error
        else:
            self.outcomes[f"{act.__name__}: answered"] += 1
            return answer
        self.outcomes[f"{act.__name__}: {refused.code}"] += 1
        assert "holdfast" in refused.hint or not isinstance(refused, StoreDamagedError)
        return None

    def sweep(self, cases: int, seed: int) -> None:
        chance = random.Random(seed)
        for case in range(cases):
            data, how = damaged(self.whole, chance)
            where = f"seed {seed}, case {case}: {how}"
            try:
                report = self.attempt(judged, data)
                self.attempt(write if case % 2 else look, data)
            except Exception as error:
                raise AssertionError(where) from error
            if report is not None and report.ok:
                assert facts_of(self.put(data)) == self.facts, where

    def require_both(self, more_than: int) -> None:
        """Require that the sweep met damage, and a right answer: else it would show nothing."""
        for outcome in ("judged: answered", "judged: store_damaged", "look: store_damaged", "write: store_damaged"):
            assert self.outcomes[outcome] > more_than, self.outcomes


@pytest.fixture
def bench(rich_sqlite: tuple[str, Rich], tmp_path: Path) -> Bench:
    return Bench(Path(rich_sqlite[0].removeprefix("sqlite:///")), tmp_path)


@pytest.mark.req("M-11", "G-22")
def test_damage_anywhere_is_a_typed_error_or_a_right_answer(bench: Bench) -> None:
    bench.sweep(60, SEED)
    bench.require_both(5)


@pytest.mark.slow
@pytest.mark.req("M-11", "G-22")
def test_damage_anywhere_is_a_typed_error_or_a_right_answer_many_times(bench: Bench) -> None:
    bench.sweep(4000, SEED + 1)
    bench.require_both(50)


@pytest.mark.req("M-11")
def test_a_file_cut_at_any_page_is_a_typed_error(bench: Bench) -> None:
    for pages in range(len(bench.whole) // PAGE):
        with pytest.raises(StoreError) as raised:
            look(bench.put(bench.whole[: pages * PAGE]), bench.clock)
        assert isinstance(raised.value, StoreDamagedError if pages else NotALedgerError), f"{pages} pages"


@pytest.mark.req("M-11", "G-22")
def test_check_names_the_page_that_is_damaged(bench: Bench) -> None:
    """Damage that leaves the file readable as a database is a violation, with SQLite's own words for it."""
    connection = sqlite3.connect(bench.put(bench.whole))
    [[root]] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'holdfast_calls_key'").fetchall()
    connection.close()
    data = bytearray(bench.whole)
    data[(root - 1) * PAGE : root * PAGE] = bytes(PAGE)
    report = judged(bench.put(bytes(data)), bench.clock)
    assert not report.ok
    [first, *_] = report.violations
    assert (first.invariant, first.subject) == ("database", "LEDGER")
    assert f"page {root}" in first.detail.lower() or "malformed" in first.detail


@pytest.mark.parametrize("command", ["check", "jobs", "stats", "submit"])
@pytest.mark.req("M-11")
def test_the_command_names_what_to_restore(bench: Bench, command: str) -> None:
    path = bench.put(bench.whole[: 3 * PAGE + 100])
    arguments = [command, *(["noop"] if command == "submit" else []), "--db", str(path)]
    outcome = holdfast(*arguments, "--json")
    assert (outcome.code, outcome.error_code) == (4, "store_damaged")
    assert "holdfast snapshot restore" in outcome.json["context"]["next_step"]
    said = holdfast(*arguments)
    assert said.code == 4
    assert "is damaged" in said.err


def test_the_command_survives_damage_of_every_kind(bench: Bench) -> None:
    chance = random.Random(SEED)
    for case in range(30):
        data, how = damaged(bench.whole, chance)
        outcome = holdfast("check", "--db", str(bench.put(data)), "--json")
        where = f"case {case}: {how}: {outcome}"
        assert outcome.code in (0, 1, 4), where
        if outcome.code == 4:
            assert outcome.error_code in ("store_damaged", "not_a_ledger", "schema_version"), where
        else:
            assert outcome.json["ok"] is (outcome.code == 0), where


def test_a_process_of_its_own_is_not_killed_by_damage(bench: Bench) -> None:
    data = bytearray(bench.whole)
    data[PAGE:] = random.Random(SEED).randbytes(len(data) - PAGE)
    outcome = process("check", "--db", str(bench.put(bytes(data))), "--json")
    assert (outcome.code, outcome.error_code) == (4, "store_damaged")


def test_a_file_with_a_lost_header_is_damaged_and_a_foreign_file_is_not_a_ledger(bench: Bench) -> None:
    path = bench.put(b"\0" * 100 + bench.whole[100:])
    with pytest.raises(StoreDamagedError) as raised:
        open_store(str(path))
    assert "holdfast snapshot restore" in raised.value.hint
    with pytest.raises(NotALedgerError):
        open_store(str(bench.put(b"something else\n" * 1000)))


@pytest.mark.parametrize("value", [5, 132, 255])
def test_a_header_that_names_another_format_is_damage(bench: Bench, value: int) -> None:
    data = bytearray(bench.whole)
    data[47] = value
    for act in (look, write, judged):
        with pytest.raises(StoreDamagedError) as caught:
            act(bench.put(bytes(data)), bench.clock)
        assert caught.value.context == {"sqlite": "SQLITE_ERROR"}
    outcome = holdfast("check", "--db", str(bench.put(bytes(data))), "--json")
    assert (outcome.code, outcome.error_code) == (4, "store_damaged")


def _overwrite(path: Path, data: bytes) -> None:
    with path.open("r+b") as stream:  # the same file, and the same owner
        stream.write(data)


@pytest.mark.req("M-11")
def test_damaged_pages_on_postgres(
    pg_server: Server, rich_postgres: tuple[str, Rich], rich_clock: VirtualClock
) -> None:
    """PostgreSQL's own checksums find the page, and what it says becomes our error and our violation."""
    url, _ = rich_postgres
    with psycopg.connect(url, autocommit=True) as session:
        rows = session.execute(
            "SELECT pg_relation_filepath('holdfast_jobs'), current_setting('data_directory'),"
            " current_setting('data_checksums')"
        ).fetchall()
        session.execute("CHECKPOINT")
    [[file, directory, checksums]] = rows
    assert checksums == "on"
    pg_server.stop()
    path = Path(directory) / file
    whole = path.read_bytes()
    _overwrite(path, whole[:200] + b"\xff" * 64 + whole[264:])
    try:
        pg_server.start()
        with connect(url, rich_clock) as store:
            report = check(store)
            [found] = [v for v in report.violations if v.invariant == "database"]
            assert (found.subject, found.evidence["sqlstate"]) == ("LEDGER", "XX001")
            with pytest.raises(StoreDamagedError) as caught, store.reading() as reading:
                reading.lists.jobs()
            assert caught.value.context == {"sqlstate": "XX001"}
    finally:
        pg_server.stop()
        _overwrite(path, whole)
        pg_server.start()
    with connect(url, rich_clock) as store:
        assert check(store).ok
