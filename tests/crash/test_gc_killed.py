"""SIGKILL at every statement and file operation of a gc: a clean ledger, nothing lost, and the next gc ends it.

Invariants: every journal row is in the ledger or in an archive that the ledger names; no key is ever done again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.audit.check.runner import check
from holdfast.audit.files.archive import read
from holdfast.audit.seals.verify import verify as verify_seals
from holdfast.store.migrations import verify
from tests.crash.gc_run import KEYS, aged_ledger, collect, make
from tests.support.forkserver import Child, ForkServer, shared_server
from tests.support.postgres import Server
from tests.support.roles import CLIENT, noted, wait_until

pytestmark = pytest.mark.attack("faults")

SEED = 20261115
FILES = ["journal-1-2.jsonl.gz", "journal-3-4.jsonl.gz", "journal-5-5.jsonl.gz"]
EFFECTS = "SELECT job_id, count(*) FROM effects GROUP BY job_id ORDER BY job_id"


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with shared_server("tests.crash.gc_run") as server:
        yield server


class Template:
    """A ledger to be copied, and the rows that its journal has."""

    def __init__(self, url: str, copy: Callable[[str], str], remove: Callable[[str], None]) -> None:
        make(url)
        self.copy, self.remove = copy, remove
        with aged_ledger(url) as ledger:
            self.rows = journal(ledger)
        assert len(self.rows) == 13


@pytest.fixture
def template(request: pytest.FixtureRequest, tmp_path: Path, dialect: str) -> Template:
    if dialect == "sqlite":
        url: str = request.getfixturevalue("sqlite_url")
        path = Path(url.removeprefix("sqlite:///"))

        def copy(name: str) -> str:
            return str(shutil.copy(path, path.with_name(f"{name}.db")))

        def remove(url: str) -> None:
            for file in Path(url).parent.glob(f"{Path(url).stem}.db*"):
                file.unlink()

        return Template(url, copy, remove)
    server: Server = request.getfixturevalue("pg_server")
    url = request.getfixturevalue("pg_url")
    name = url.rpartition("/")[2]
    return Template(url, lambda _: server.create_database(template=name), server.drop_database)


class Run:
    """One copy of the template, and one child that collects in it until it is killed."""

    def __init__(self, server: ForkServer, template: Template, directory: Path, kill_at: int | None) -> None:
        self.kill_at = kill_at
        self.url = template.copy(str(kill_at))
        self.folder = directory / str(kill_at)
        self.folder.mkdir()
        self.counted = directory / f"{kill_at}.counted"
        self.child: Child = server.spawn(
            "tests.crash.gc_run:run",
            url=self.url,
            folder=str(self.folder),
            counted=str(self.counted),
            kill_at=kill_at,
        )


def journal(ledger: Ledger) -> set[tuple[Any, ...]]:
    with ledger.store.reading() as reading:
        return set(reading.seals.journal_chunk(after=0, limit=1_000_000))


def require_clean(ledger: Ledger, folder: Path, rows: set[tuple[Any, ...]]) -> list[str]:
    """Fail unless the ledger is sound and has or names every row; return the archives that it names."""
    verify(ledger.store)
    assert check(ledger.store).violations == ()
    assert verify_seals(ledger.store, archives=folder).problems == ()
    with ledger.store.reading() as reading:
        named = reading.seals.archives()
        [[ended]] = reading.execute("SELECT count(*) FROM holdfast_aborted")
    files = [read(folder / record.file, sha256=record.sha256) for record in named]
    archived = [row for file in files for row in file.journal]
    assert len(archived) == len(set(archived))
    assert rows <= journal(ledger) | set(archived)
    # The attempt that was given back is in the ledger or in an archive.
    assert ended + sum(len(file.executions) for file in files) == 1
    return [record.file for record in named]


def require_sound(run: Run, rows: set[tuple[Any, ...]]) -> None:
    """Check what the killed run left, as it is found and after another gc."""
    with aged_ledger(run.url) as ledger:
        named = require_clean(ledger, run.folder, rows)
        assert named == FILES[: len(named)]
        receipts = [ledger.submit("step", {"key": key}, client=CLIENT, key=key) for key in KEYS]
        assert not any(receipt.is_new for receipt in receipts)
        report = collect(ledger, run.folder)
        assert (report.held, [made.file for made in report.archives]) == (None, FILES[len(named) :])
        assert require_clean(ledger, run.folder, rows) == FILES
        with ledger.store.reading() as reading:
            jobs = reading.lists.jobs()
            assert [(job.state.value, job.slimmed) for job in jobs] == [("quarantined", True)] + [
                ("succeeded", True)
            ] * 3
            assert reading.execute("SELECT status, count(*) FROM holdfast_executions GROUP BY status") == [("DONE", 3)]
        receipts = [ledger.submit("step", {"key": key}, client=CLIENT, key=key) for key in KEYS]
        assert [(receipt.is_new, receipt.result_expired) for receipt in receipts] == [(False, True)] * 3
        assert ledger.run_until_idle() == 0
        with ledger.store.reading() as reading:
            assert reading.execute(EFFECTS) == [(1, 1), (2, 1), (3, 1)]
    # What a killed writer left under a name of its own is swept later; nothing else is.
    assert sorted(path.name for path in run.folder.iterdir() if path.suffix != ".part") == FILES


def count_steps(server: ForkServer, template: Template, directory: Path) -> int:
    whole = Run(server, template, directory, None)
    assert whole.child.wait(30) == 0, server.log
    [count] = noted(whole.counted)
    with aged_ledger(whole.url) as ledger:
        assert require_clean(ledger, whole.folder, template.rows) == FILES
    template.remove(whole.url)
    return int(count)


def kill_at_each(server: ForkServer, template: Template, directory: Path, points: list[int]) -> None:
    """Kill one run at each of these points; the next one runs while the last one is checked."""
    killed: Run | None = None
    for point in [*points, None]:
        run = None if point is None else Run(server, template, directory, point)
        if killed is not None:
            assert killed.child.wait(30) == -9, f"not killed at {killed.kill_at}\n{server.log}"
            try:
                require_sound(killed, template.rows)
            except BaseException:
                print(f"killed at step {killed.kill_at}")
                raise
            template.remove(killed.url)
        killed = run


@pytest.mark.req("W-06", "W-07", "K-63")
@pytest.mark.parametrize(
    "dialect, n", [("sqlite", 8), pytest.param("postgres", 2, marks=pytest.mark.pg)], ids=["sqlite", "postgres"]
)
def test_a_gc_that_is_killed_leaves_a_clean_ledger_and_the_next_one_ends_it(
    server: ForkServer, template: Template, tmp_path: Path, n: int
) -> None:
    steps = count_steps(server, template, tmp_path)
    assert steps > 100
    kill_at_each(server, template, tmp_path, sorted(random.Random(SEED).sample(range(1, steps + 1), n)))


@pytest.mark.req("W-07", "X-09")
@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def test_clients_that_repeat_their_keys_during_gc_get_correct_answers(
    server: ForkServer, template: Template, tmp_path: Path
) -> None:
    """Two clients and three gcs, each a process of its own: everything is dropped once, and nothing is done again."""
    url = template.copy("beside")
    folder, notes, stop = tmp_path / "archives", tmp_path / "notes", tmp_path / "stop"
    folder.mkdir()
    role = "tests.crash.gc_run"
    clients = [server.spawn(f"{role}:repeat", url=url, notes=str(notes), stop=str(stop)) for _ in range(2)]
    wait_until(lambda: len(noted(notes)) > 10, 30, "the clients repeat", lambda: server.log)
    gcs = [
        server.spawn(f"{role}:collect_alone", url=url, folder=str(folder), notes=str(tmp_path / "done"))
        for _ in range(3)
    ]
    assert [child.wait(60) for child in gcs] == [0, 0, 0], server.log
    seen = len(noted(notes))
    wait_until(lambda: len(noted(notes)) > seen + 10, 30, "the clients repeat", lambda: server.log)
    stop.touch()
    assert [child.wait(60) for child in clients] == [0, 0], server.log
    answers = {tuple(line.split()) for line in noted(notes)}
    assert answers == {
        (key, str(job_id), "False", result) for job_id, key in enumerate(KEYS, start=1) for result in (key, "expired")
    }
    reports = [line.split() for line in noted(tmp_path / "done")]
    assert sorted(file for _, _, *files in reports for file in files) == FILES
    assert (sum(int(r[0]) for r in reports), sum(int(r[1]) for r in reports)) == (3, 1)
    with aged_ledger(url) as ledger:
        assert require_clean(ledger, folder, template.rows) == FILES
        assert ledger.run_until_idle() == 0
        with ledger.store.reading() as reading:
            assert reading.execute(EFFECTS) == [(1, 1), (2, 1), (3, 1)]
    template.remove(url)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.req("W-06", "W-07", "K-63")
@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def test_a_gc_that_is_killed_anywhere_leaves_a_clean_ledger_and_the_next_one_ends_it(
    server: ForkServer, template: Template, tmp_path: Path
) -> None:
    kill_at_each(server, template, tmp_path, list(range(1, count_steps(server, template, tmp_path) + 1)))
