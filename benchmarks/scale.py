"""Whether `stats`, `jobs` and `show` need the same time in a small ledger and in a large one.

For each size a ledger is filled: a file, or a database of one server. The queries go to the ledgers alternately,
through the store's own reading verbs, so that a slower moment of the machine affects all sizes. The result is the ratio
of the medians; near 1 means that the time does not grow.

Invariants: all sizes are measured at the same time; a filled job has its execution, every row of its journal and its
count, inserted in sets during maintenance; jobs that have not succeeded are mostly the oldest ones, so a query that
scans from the newest job to find them is slow; a run stops if a ledger does not contain exactly the jobs of its size.
"""

from __future__ import annotations

import os
import platform
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.peers._common import PAYLOAD
from holdfast.core.digest import payload_text
from holdfast.core.machines import EXECUTION, JOB, JobState
from holdfast.core.records import time_text
from holdfast.store import Store, Submission, create_store
from holdfast.store.transaction import Reading
from tests.support.postgres import Server, tmpfs_directory

SIZES, SIZES_QUICK = (20_000, 100_000), (2_000, 6_000)
OLDEST = 1_000  # among these every state is common; after them a job has succeeded, or one in a hundred has failed
CHUNK = 100_000
PAGE = 50
WARM_UP = 15  # PostgreSQL chooses a generic plan after some executions
SAMPLES, SAMPLES_QUICK = 200, 20
SAMPLES_MIN = 5
BUDGET_S = 3.0  # a slow query gets fewer samples
FLAT = 1.5
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
# The write-ahead log is kept short: it is in the same memory as the ledgers.
SERVER_SETTINGS = {"checkpoint_timeout": "1h", "max_wal_size": "1GB", "shared_buffers": "1GB"}
TEXT = payload_text(PAYLOAD)
DIGEST = Submission(operation="noop", payload=TEXT).digest
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
READS_EVERY_JOB = "stats --at"
"""The query that reads every job: its ratio is shown, but has no limit."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one query at one size."""

    database: str
    jobs: int
    query: str
    samples: int
    median_ms: float
    p95_ms: float


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one query at the largest size, divided by its time at the smallest."""

    database: str
    query: str
    ratio: float
    flat: bool | None  # None without a limit


# ---------------------------------------------------------------------------------------------------------------------
# Filling

# The events of a job in each state, and of its one execution.
EVENTS = {
    JobState.PENDING: (("submit",), ()),
    JobState.RUNNING: (("submit", "claim"), ("begin",)),
    JobState.SUCCEEDED: (("submit", "claim", "succeed"), ("begin", "complete")),
    JobState.FAILED: (("submit", "claim", "fail"), ("begin", "abort")),
    JobState.QUARANTINED: (("submit", "claim", "quarantine"), ("begin", "abort")),
}
STATE = f"""CASE WHEN n > {OLDEST} THEN CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'succeeded' END
  WHEN n % 5 = 0 THEN 'pending' WHEN n % 5 = 1 THEN 'running' WHEN n % 5 = 2 THEN 'failed'
  WHEN n % 5 = 3 THEN 'quarantined' ELSE 'succeeded' END"""
NUMBERS = {
    "sqlite": "WITH RECURSIVE x (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM x WHERE n < {last}) SELECT n FROM x",
    "postgres": "SELECT n FROM generate_series({first}::bigint, {last}::bigint) n",
}
JOBS = """INSERT INTO holdfast_jobs (operation, operation_version, client, key, queue, state, version, attempts,
  max_attempts, replay_attempts, run_at, payload, digest, result, created_at, updated_at, event, actor, move_id)
SELECT 'noop', '1.0.0', 'bench', 'key/' || n, 'default', t.state, l.version,
  CASE t.state WHEN 'pending' THEN 0 ELSE 1 END, 5, 5, {begins}, '{text}', '{digest}',
  CASE t.state WHEN 'succeeded' THEN '{{"ok":true}}' END, {begins}, {begins}, l.event, 'bench', 'fill-' || n
  FROM (SELECT n, {state} AS state FROM ({numbers}) s) t JOIN ({last_of_job}) l ON l.state = t.state ORDER BY n"""
EXECUTIONS = """INSERT INTO holdfast_executions (job_id, attempt, status, version, lease_owner, lease_expires_at,
  started_at, finished_at, created_at, updated_at, event, actor, move_id)
SELECT j.job_id, 1, l.target, l.version, 'bench', {ends}, {begins}, {begins}, {begins}, {begins}, l.event, 'bench',
  'fill-' || j.job_id
  FROM holdfast_jobs j JOIN ({last_of_execution}) l ON l.state = j.state
 WHERE j.job_id BETWEEN {first} AND {last} ORDER BY j.job_id"""
JOURNAL = """INSERT INTO holdfast_journal (epoch, xid, machine, subject, version, source, target, event, actor, attempt,
  move_id, at)
SELECT 1, 0, l.machine, CASE l.machine WHEN 'JOB' THEN j.job_id ELSE e.exec_id END, l.version, l.source, l.target,
  l.event, 'bench', CASE l.event WHEN 'submit' THEN 0 ELSE 1 END, 'fill-' || j.job_id, '{at}'
  FROM holdfast_jobs j LEFT JOIN holdfast_executions e ON e.job_id = j.job_id JOIN ({edges}) l ON l.state = j.state
 WHERE j.job_id BETWEEN {first} AND {last} ORDER BY j.job_id, l.machine, l.version"""


def _edges() -> Iterator[tuple[str, str, int, str | None, str, str]]:
    """Yield (state, machine, version, source, target, event): each row of the journal of a job of each state."""
    for state, histories in EVENTS.items():
        for machine, events in zip((JOB, EXECUTION), histories, strict=True):
            at: str | None = None
            version = 0
            for event in events:
                for edge in machine.path(event, at).edges:
                    version += 1
                    yield state.value, machine.name, version, edge.source, edge.target, event
                at = machine.path(event, at).target


def _selected(rows: Iterable[tuple[object, ...]]) -> str:
    """Return rows as SQL, with the column names of `_edges`."""
    texts = (", ".join("NULL" if value is None else repr(value) for value in row) for row in rows)
    named = "SELECT '' AS state, '' AS machine, 0 AS version, '' AS source, '' AS target, '' AS event WHERE 1 = 0"
    return " UNION ALL ".join([named, *(f"SELECT {text}" for text in texts)])


def fill(store: Store[Any], have: int, want: int) -> None:
    """Add jobs, with their executions and their whole histories, until the ledger contains `want` jobs."""
    at, cast = time_text(BEGAN), "::timestamptz" if store.dialect == "postgres" else ""
    edges = list(_edges())
    last_edges = {edge[:2]: edge for edge in edges}
    words: dict[str, object] = {
        "at": at,
        "begins": f"'{at}'{cast}",
        "ends": f"'{time_text(BEGAN + timedelta(days=36_500))}'{cast}",
        "text": TEXT,
        "digest": DIGEST,
        "state": STATE,
        "edges": _selected(edges),
        "last_of_job": _selected(edge for edge in last_edges.values() if edge[1] == JOB.name),
        "last_of_execution": _selected(edge for edge in last_edges.values() if edge[1] == EXECUTION.name),
    }
    for first in range(have + 1, want + 1, CHUNK):
        words |= {"first": first, "last": min(first + CHUNK - 1, want)}
        words["numbers"] = NUMBERS[store.dialect].format(**words)
        with store.transaction() as transaction, transaction.maintenance.open(who="bench", why="to fill the ledger"):
            for statement in (JOBS, EXECUTIONS, JOURNAL):
                transaction.execute(statement.format(**words))
        with store.transaction() as transaction:
            transaction.counts.fold()
            transaction.retention.extend_journal()
        _settle(
            store, " holdfast_counts, holdfast_count_deltas"
        )  # without this their dead rows would make reads slower
    _settle(store)
    with store.reading() as reading:
        held = sum(count.n for count in reading.counts.current())
        [[last_id]] = reading.execute("SELECT max(job_id) FROM holdfast_jobs")
        state = reading.jobs.get(want).state
        journalled = len(reading.journal.of(want)) + len(reading.journal.of_executions(want))
    expected = sum(edge[0] == state for edge in edges)
    assert (held, last_id, journalled) == (want, want, expected), (held, last_id, journalled)


def _settle(store: Store[Any], tables: str = "") -> None:
    """Vacuum or checkpoint, as the database does by itself after a while."""
    if store.dialect == "postgres":
        with psycopg.connect(store.url, autocommit=True) as server:
            server.execute(f"VACUUM ANALYZE{tables}")
    elif not tables:
        with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")


# ---------------------------------------------------------------------------------------------------------------------
# Measuring


def queries(jobs: int) -> dict[str, Callable[[Reading], object]]:
    """Return the queries of a ledger with this many jobs, by name: the verbs of `stats`, `jobs` and `show`."""
    chance = random.Random(jobs)

    def show(reading: Reading) -> object:
        job_id = chance.randint(1, jobs)
        found = reading.jobs.get(job_id), reading.lists.executions(job_id), reading.journal.of(job_id)
        return (*found, reading.journal.of_executions(job_id))

    return {
        "stats": lambda reading: reading.counts.current(),
        "jobs": lambda reading: reading.lists.jobs(limit=PAGE),
        "jobs --before": lambda reading: reading.lists.jobs(limit=PAGE, before=chance.randint(jobs // 2, jobs)),
        **{f"jobs --state {state}": partial(_page, state=state) for state in JobState},
        "show": show,
        READS_EVERY_JOB: lambda reading: reading.counts.as_of(BEGAN),
    }


def _page(reading: Reading, state: JobState) -> object:
    return reading.lists.jobs(state=state, limit=PAGE)


def measure(ledgers: Mapping[int, Store[Any]], database: str, *, quick: bool) -> list[Figure]:
    """Return the time of each query at each size, smallest size first."""
    by_size = {jobs: queries(jobs) for jobs in sorted(ledgers)}
    figures = []
    for query in next(iter(by_size.values())):
        answers = {jobs: (ledgers[jobs], by_size[jobs][query]) for jobs in by_size}
        for jobs, taken in _timed(answers, SAMPLES_QUICK if quick else SAMPLES).items():
            figures.append(
                Figure(
                    database=database,
                    jobs=jobs,
                    query=query,
                    samples=len(taken),
                    median_ms=statistics.median(taken),
                    p95_ms=statistics.quantiles(taken, n=20)[-1],
                )
            )
    return sorted(figures, key=lambda figure: figure.jobs)


Answers = Mapping[int, tuple[Store[Any], Callable[[Reading], object]]]


def _timed(answers: Answers, samples: int) -> dict[int, list[float]]:
    """Return milliseconds by size, without the warm-up, the sizes alternately; fewer samples if the query is slow."""
    taken: dict[int, list[float]] = {jobs: [] for jobs in answers}
    turns = [list(answers.items()), list(answers.items())[::-1]]  # A, B, B, A: no size is always the first
    give_up = time.monotonic() + BUDGET_S * len(answers)
    for n in range(WARM_UP + samples):
        for jobs, (store, answer) in turns[n % 2]:
            began = time.perf_counter()
            with store.reading() as reading:
                answer(reading)
            taken[jobs].append((time.perf_counter() - began) * 1000)
        if n + 1 >= SAMPLES_MIN and time.monotonic() > give_up:
            break
    settled = n + 1 >= WARM_UP + SAMPLES_MIN
    return {jobs: times[WARM_UP:] if settled else times[-SAMPLES_MIN:] for jobs, times in taken.items()}


# ---------------------------------------------------------------------------------------------------------------------
# The suite


def run(databases: Sequence[str], *, quick: bool, path: Path, sizes: Sequence[int] = ()) -> None:
    """Measure these databases at these sizes, print a table for each, and write the figures to `path`."""
    console = Console(width=118)
    chosen = sorted(set(sizes)) or (SIZES_QUICK if quick else SIZES)
    figures: list[Figure] = []
    for database in databases:
        with _ledgers(database, chosen) as ledgers:
            for size, store in ledgers.items():
                fill(store, 0, size)
            figures += measure(ledgers, database, quick=quick)
        console.print(_table(database, chosen, figures))
    result = {
        "suite": "scale",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "sizes": list(chosen),
        "figures": figures,
        "ratios": [ratio for database in databases for ratio in ratios(database, chosen, figures)],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    console.print(f"Figures: {path}")


def ratios(database: str, sizes: Sequence[int], figures: Sequence[Figure]) -> Iterator[Ratio]:
    """Yield the ratio of each query from the smallest size to the largest."""
    medians = {(figure.query, figure.jobs): figure.median_ms for figure in figures if figure.database == database}
    for query in dict.fromkeys(query for query, _ in medians):
        ratio = medians[query, sizes[-1]] / medians[query, sizes[0]]
        has_limit = query != READS_EVERY_JOB and len(sizes) > 1
        yield Ratio(database=database, query=query, ratio=ratio, flat=ratio <= FLAT if has_limit else None)


def _table(database: str, sizes: Sequence[int], figures: Sequence[Figure]) -> Table:
    title = f"{NAMES[database]}: median milliseconds of a query, by the number of jobs in the ledger"
    table = Table(title=title, box=SIMPLE, title_justify="left")
    table.add_column("query", no_wrap=True)
    for size in sizes:
        table.add_column(f"{size:,} jobs", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column(f"at most {FLAT:g}")
    medians = {(figure.query, figure.jobs): figure.median_ms for figure in figures if figure.database == database}
    for ratio in ratios(database, sizes, figures):
        times = [f"{medians[ratio.query, size]:.3f}" for size in sizes]
        verdict = {True: "flat", False: "GROWS", None: ""}[ratio.flat]
        table.add_row(ratio.query, *times, f"{ratio.ratio:.2f}", verdict)
    return table


@contextmanager
def _ledgers(database: str, sizes: Sequence[int]) -> Iterator[dict[int, Store[Any]]]:
    """Yield an empty ledger for each size: databases of one server, or files of one directory."""
    with ExitStack() as stack:
        if database == "postgres":
            server = stack.enter_context(Server(settings=SERVER_SETTINGS))
            urls = {size: server.create_database() for size in sizes}
        else:
            directory = tempfile.mkdtemp(prefix="holdfast-bench-", dir=tmpfs_directory())
            stack.callback(shutil.rmtree, directory)
            urls = {size: f"sqlite:///{directory}/{size}.db" for size in sizes}
        yield {size: stack.enter_context(create_store(url)) for size, url in urls.items()}
