"""Whether `stats`, `jobs` and `show` need the same time in a small ledger and in a large one, and whether a drain does.

For each size a ledger is filled by real work: a file, or a database of one server. The queries go to the ledgers
alternately, through the store's own reading verbs, and so do the drains, so that a slower moment of the machine affects
all sizes. The result is the ratio of the medians; near 1 means that the time does not grow.

Invariants: all sizes are measured at the same time; jobs that have not succeeded are mostly the oldest ones, so a query
that scans from the newest job to find them is slow; a run stops if a ledger does not contain exactly the jobs of its
size.
"""

from __future__ import annotations

import os
import platform
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psycopg
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.soak import CHUNK, CONCURRENCY, calls, feed, operations
from holdfast import Ledger, Worker
from holdfast.core.machines import JobState
from holdfast.store import Lease, Store
from holdfast.store.transaction import Reading
from tests.support.postgres import Server, tmpfs_directory

Name = TypeVar("Name")
SIZES, SIZES_QUICK = (20_000, 100_000), (1_200, 2_400)
OLDEST = 1_000  # among these every state is common; after them a job has succeeded, or one in a hundred has failed
PAGE = 50
WARM_UP = 15  # PostgreSQL chooses a generic plan after some executions
SAMPLES, SAMPLES_QUICK = 200, 20
SAMPLES_MIN = 5
BUDGET_S = 3.0  # a slow query gets fewer samples
FLAT = 1.5
DRAIN, DRAIN_QUICK, DRAIN_ROUNDS = 20_000, 60, 3
DRAIN_RATIO = 0.9
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
# The write-ahead log is kept short: it is in the same memory as the ledgers.
SERVER_SETTINGS = {"checkpoint_timeout": "1h", "max_wal_size": "1GB", "shared_buffers": "1GB"}
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


def fill(ledger: Ledger, url: str, jobs: int) -> range:
    """Bring an empty ledger to `jobs` jobs by real work; return their ids."""
    fifth = OLDEST // 5
    later = datetime.now(UTC) + timedelta(days=36_500)
    pending = ledger.submit_many([{**call, "run_at": later} for call in calls(fifth)])
    ledger.submit_many([{**call, "queue": "held"} for call in calls(fifth)])
    hold(ledger, "held", fifth)
    for receipt in ledger.submit_many([{**call, "run_at": later} for call in calls(fifth)]):
        ledger.quarantine(receipt.job_id, "bench", reason="to fill the ledger")
    feed(ledger, url, 2 * fifth, fail_every=2, steps=1)
    feed(ledger, url, jobs - OLDEST, fail_every=100, steps=1)
    settle(ledger)
    counts = {count.state: count.n for count in ledger.counts()}
    failed = fifth + sum(-(-min(CHUNK, jobs - OLDEST - at) // 100) for at in range(0, jobs - OLDEST, CHUNK))
    expected = dict.fromkeys((JobState.PENDING, JobState.RUNNING, JobState.QUARANTINED), fifth)
    expected |= {JobState.FAILED: failed, JobState.SUCCEEDED: jobs - 3 * fifth - failed}
    assert counts == expected, (counts, expected)
    ids = range(pending[0].job_id, pending[0].job_id + jobs)
    ledger.job(ids[-1])  # raises if the ids are not one after the other
    return ids


def hold(ledger: Ledger, queue: str, jobs: int) -> None:
    """Claim jobs for a worker that does not exist, with leases that last longer than the run."""
    with ledger.store.transaction() as transaction:
        claimed = transaction.executions.claim(Lease(owner="bench", seconds=1e6, n=jobs, queues=(queue,)))
    assert len(claimed) == jobs, len(claimed)


def settle(ledger: Ledger) -> None:
    """Fold the counts, and vacuum or checkpoint, as a worker and the database do by themselves after a while."""
    with ledger.store.transaction() as transaction:
        transaction.counts.fold()
    url = ledger.store.url
    if ledger.store.dialect == "postgres":
        with psycopg.connect(url, autocommit=True) as server:
            server.execute("VACUUM ANALYZE")
    else:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")


# ---------------------------------------------------------------------------------------------------------------------
# Measuring


def queries(ids: range) -> dict[str, Callable[[Reading], object]]:
    """Return the queries of a ledger with these jobs, by name: the verbs of `stats`, `jobs` and `show`."""
    chance = random.Random(len(ids))
    newer = ids[len(ids) // 2 :]
    then = datetime.now(UTC)

    def show(reading: Reading) -> object:
        job_id = chance.choice(ids)
        found = reading.jobs.get(job_id), reading.lists.executions(job_id), reading.journal.of(job_id)
        return (*found, reading.journal.of_executions(job_id))

    return {
        "stats": lambda reading: reading.counts.current(),
        "jobs": lambda reading: reading.lists.jobs(limit=PAGE),
        "jobs --before": lambda reading: reading.lists.jobs(limit=PAGE, before=chance.choice(newer)),
        **{f"jobs --state {state}": partial(_page, state=state) for state in JobState},
        "show": show,
        READS_EVERY_JOB: lambda reading: reading.counts.as_of(then),
    }


def _page(reading: Reading, state: JobState) -> object:
    return reading.lists.jobs(state=state, limit=PAGE)


def measure(ledgers: Mapping[int, tuple[Ledger, range]], database: str, *, quick: bool) -> list[Figure]:
    """Return the time of each query at each size, smallest size first."""
    by_size = {jobs: queries(ledgers[jobs][1]) for jobs in sorted(ledgers)}
    figures = []
    for query in next(iter(by_size.values())):
        answers = {jobs: (ledgers[jobs][0].store, by_size[jobs][query]) for jobs in by_size}
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


def drain(ledgers: Mapping[int, Ledger], *, quick: bool) -> dict[int, float]:
    """Return how many jobs a second a worker drains at each size, the sizes alternately."""
    jobs = DRAIN_QUICK if quick else DRAIN
    rates: dict[int, list[float]] = {size: [] for size in ledgers}
    for _ in range(DRAIN_ROUNDS):
        for size, ledger in ledgers.items():
            for begin in range(0, jobs, CHUNK):
                ledger.submit_many(calls(min(CHUNK, jobs - begin)))
            worker = Worker(ledger, concurrency=CONCURRENCY)
            began = time.perf_counter()
            attempts = worker.run(until_idle=True)
            rates[size].append(attempts / (time.perf_counter() - began))
            assert attempts == jobs, attempts
    return {size: round(statistics.median(taken)) for size, taken in rates.items()}


# ---------------------------------------------------------------------------------------------------------------------
# The suite


def run(databases: Sequence[str], *, quick: bool, path: Path, sizes: Sequence[int] = ()) -> None:
    """Measure these databases at these sizes, print a table for each, and write the figures to `path`."""
    console = Console(width=118)
    chosen = sorted(set(sizes)) or (SIZES_QUICK if quick else SIZES)
    figures: list[Figure] = []
    drains: list[dict[str, Any]] = []
    for database in databases:
        with places(database, chosen) as urls, ExitStack() as stack:
            ledgers = {}
            for size, url in urls.items():
                ledger = stack.enter_context(Ledger(url, operations))
                ledgers[size] = (ledger, fill(ledger, url, size))
            figures += measure(ledgers, database, quick=quick)
            drained = drain({size: ledger for size, (ledger, _) in ledgers.items()}, quick=quick)
        console.print(_table(database, chosen, figures))
        rate = drained[chosen[-1]] / drained[chosen[0]]
        drains.append({"database": database, "per_second": drained, "ratio": rate, "met": rate >= DRAIN_RATIO})
        said = "met" if rate >= DRAIN_RATIO else "MISSED"
        console.print(
            f"Drain: {drained} jobs/s by size; the largest over the smallest {rate:.2f}, ≥ {DRAIN_RATIO}: {said}"
        )
    result = {
        "suite": "scale",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "sizes": list(chosen),
        "figures": figures,
        "drains": drains,
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
def places(database: str, names: Sequence[Name]) -> Iterator[dict[Name, str]]:
    """Yield the URL of an empty place for each name: databases of one server, or files of one directory."""
    if database == "postgres":
        with Server(settings=SERVER_SETTINGS) as server:
            yield {name: server.create_database() for name in names}
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=tmpfs_directory()) as directory:
            yield {name: f"sqlite:///{directory}/{number}.db" for number, name in enumerate(names)}
