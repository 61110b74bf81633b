"""SIGKILL at every statement of a write-ahead log's run: no answered entry is lost, and no key takes effect twice."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast import Ledger
from holdfast.compat import EntryStatus, Wal
from holdfast.engine.world import World
from holdfast.testing import VirtualClock
from tests.crash.wal_run import COMPLETED, EFFECTS, FAILED, KEYS, LEASE_S, append, carry_out, log_on, retry
from tests.support.forkserver import Child, ForkServer, shared_server
from tests.support.promises import Facts, require_promises
from tests.support.roles import noted

pytestmark = pytest.mark.attack("faults")

SEED = 20261115
WHOLE = "whole"


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with shared_server("tests.crash.wal_run") as server:
        yield server


class Bench:
    """Where runs are made: a copy of a file each on SQLite, a log of its own each on PostgreSQL."""

    def __init__(self, server: ForkServer, url: str, directory: Path) -> None:
        self.server = server
        self._url = url
        self._template = None if url.startswith("postgres") else Path(urlsplit(url).path[1:])
        self.directory = directory if self._template is None else self._template.parent
        with self.ledger(url) as ledger, ledger.store.transaction() as transaction:
            transaction.execute(EFFECTS)

    @property
    def is_file(self) -> bool:
        return self._template is not None

    def ledger(self, url: str) -> Ledger:
        clock = VirtualClock()
        clock.advance(10 * 86_400)  # later than anything that a run does
        return Ledger(url, world=World(clock=clock))

    def copy(self, name: str) -> str:
        if self._template is None:
            return self._url
        copy = self.directory / f"{name}.db"
        shutil.copyfile(self._template, copy)
        return f"sqlite:///{copy}"


class Run:
    """One child that runs through a log until it is killed."""

    def __init__(self, bench: Bench, name: str, by: str, kill_at: int | None, role: str = "run") -> None:
        self.name = name
        self.url = bench.copy(name)
        self._bench = bench
        self.notes, self.counted = bench.directory / f"{name}.notes", bench.directory / f"{name}.counted"
        self.child: Child = bench.server.spawn(
            f"tests.crash.wal_run:{role}",
            url=self.url,
            name=name,
            notes=str(self.notes),
            counted=str(self.counted),
            by=by,
            kill_at=kill_at,
        )

    def answers(self, word: str) -> set[str]:
        """Return the keys that were answered with this word before the end."""
        lines = [line.split() for line in noted(self.notes)]
        return {key for first, *keys in lines if first == word for key in keys}

    def remove(self) -> None:
        for file in self._bench.directory.glob(f"{self.name}.*"):
            file.unlink()


def effects(ledger: Ledger, wal: Wal) -> Counter[str]:
    with ledger.store.reading() as reading:
        rows = reading.execute("SELECT log, key FROM wal_effects")
    return Counter(key for log, key in rows if log == wal.name)


def entries(ledger: Ledger, wal: Wal) -> Counter[str]:
    with ledger.store.reading() as reading:
        jobs = reading.lists.jobs(queue=wal.queue, limit=1000)
    return Counter(job.key or "" for job in jobs)


def require_sound(bench: Bench, run: Run) -> None:
    """Check what the killed run left, as it is found, and after its clients and a recovery have been at it again."""
    with bench.ledger(run.url) as ledger:
        wal = log_on(ledger, run.name)
        found, entered = effects(ledger, wal), entries(ledger, wal)
        assert run.answers("appended") <= entered.keys()  # no entry that was answered is lost
        assert set(entered.values()) <= {1}
        for key in entered:
            entry = wal.find_by_idempotency_key(f"client-{run.name}", key)
            assert entry is not None
            # Completed is applied, and applied is Completed; whatever else, storage is untouched.
            assert found[key] == (entry.status is EntryStatus.COMPLETED)
            if key in run.answers("completed"):
                assert entry.status is EntryStatus.COMPLETED
            if key in run.answers("failed"):
                assert entry.status is EntryStatus.FAILED
        if bench.is_file:
            require_promises(Facts(ledger, effects=False), effects=False)
        # A client without an answer requests again; recovery ends the rest; then cleanup, and all request again.
        before = set(entered)
        assert [key for key in KEYS if append(wal, key)[1]] == [key for key in KEYS if key not in before]
        wal.recover(carry_out(wal))
        assert isinstance(ledger.world.clock, VirtualClock)
        ledger.world.clock.advance(LEASE_S)
        wal.cleanup(timedelta(0))
        for key in KEYS:
            retry(wal, key)
            assert wal.get(append(wal, key)[0]).result_expired
        require_done(ledger, wal)


def require_done(ledger: Ledger, wal: Wal) -> None:
    assert entries(ledger, wal) == dict.fromkeys(KEYS, 1)
    assert effects(ledger, wal) == dict.fromkeys(COMPLETED, 1)
    for key in KEYS:
        entry = wal.find_by_idempotency_key(f"client-{wal.name}", key)
        assert entry is not None
        assert entry.status is (EntryStatus.FAILED if key in FAILED else EntryStatus.COMPLETED)
    assert wal.pending_count() == 0


def kill_at_each(bench: Bench, by: str, n: int | None) -> int:
    """Kill one run at each of its statements, or at `n` of them by a fixed seed; return how many there are."""
    whole = Run(bench, WHOLE, by, None)
    assert whole.child.wait(60) == 0, bench.server.log
    [count] = noted(whole.counted)
    with bench.ledger(whole.url) as ledger:
        require_done(ledger, log_on(ledger, WHOLE))
    whole.remove()
    every = range(1, int(count) + 1)
    points = list(every) if n is None else sorted(random.Random(SEED).sample(every, n))
    killed: Run | None = None
    for point in [*points, None]:  # the next one runs while the last one is checked
        run = None if point is None else Run(bench, f"at-{point}", by, point)
        if killed is not None:
            assert killed.child.wait(60) == -9, f"not killed {killed.name}\n{bench.server.log}"
            try:
                require_sound(bench, killed)
            except BaseException:
                print(f"killed {killed.name}, by {by}, of {count}")
                raise
            killed.remove()
        killed = run
    return int(count)


WAL_CLAUSES = pytest.mark.req("W-02", "W-03", "W-04", "W-05", "W-06", "W-07", "W-08", "W-14", "W-15")


@WAL_CLAUSES
def test_a_kill_at_some_statements_loses_nothing_and_repeats_nothing(
    server: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    bench = Bench(server, ledger_url, tmp_path)
    assert kill_at_each(bench, "statement", 10 if bench.is_file else 4) > 150


@WAL_CLAUSES
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_kill_at_any_statement_loses_nothing_and_repeats_nothing(
    server: ForkServer, ledger_url: str, tmp_path: Path
) -> None:
    kill_at_each(Bench(server, ledger_url, tmp_path), "statement", None)


@WAL_CLAUSES
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("by, n", [("trigger", None), ("opcode", 600)])
def test_a_kill_within_a_statement_loses_nothing_and_repeats_nothing(
    server: ForkServer, sqlite_url: str, tmp_path: Path, by: str, n: int | None
) -> None:
    kill_at_each(Bench(server, sqlite_url, tmp_path), by, n)


def test_a_log_that_completes_in_two_steps_fails_the_test(server: ForkServer, sqlite_url: str, tmp_path: Path) -> None:
    """The check can fail: a kill between an effect and its completion leaves what must not be."""
    bench = Bench(server, sqlite_url, tmp_path)
    whole = Run(bench, WHOLE, "statement", None, "run_in_two_steps")
    assert whole.child.wait(60) == 0, server.log
    for point in range(30, int(noted(whole.counted)[0])):
        run = Run(bench, f"at-{point}", "statement", point, "run_in_two_steps")
        assert run.child.wait(60) == -9, server.log
        try:
            require_sound(bench, run)
        except AssertionError:
            return
    pytest.fail("nothing was found")
