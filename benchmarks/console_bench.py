"""The time of each page of the console with five million jobs, also after many moves while no worker runs.

The jobs are written by a few statements over the real schema, with the triggers off: real work would take hours. The
pages are then requested one after the other from the application itself, without a network.

Invariants: every page is measured with the ledger read anew (the shared snapshot has expired), beside the thread that
groups the failures, and answers 200; a page has met its limit if its slowest request has, the first one included.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psycopg
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.scale import NAMES, SERVER_SETTINGS, settle
from holdfast import Ledger
from holdfast.store.joint import FOLD_EVERY
from tests.support.postgres import Server, tmpfs_directory

JOBS, JOBS_QUICK = 5_000_000, 20_000
MOVES, MOVES_QUICK, BATCH = 250_000, 5_000, 1_000  # while no worker runs, and how many are one submit
SAMPLES = 9
LIMIT_MS = 100.0
PER_SECOND = 50  # jobs that were submitted, so that five million are 28 hours
OPERATIONS, QUEUES = 10, 5
PENDING = 2_000
RARE = 7  # the job with the operation and the client that no other job has


class PageTime(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one page."""

    database: str
    jobs: int
    unfolded: int
    page: str
    median_ms: float
    next_ms: float  # the slowest request but one
    slow_ms: float  # the slowest request
    cpu_ms: float  # processor time of this process, median: what else the machine does is not in it
    met: bool


# ---------------------------------------------------------------------------------------------------------------------
# Filling


class _Writer:
    """Writes the rows of one database: the statements differ in how they count and in how they write a time."""

    def __init__(self, ledger: Ledger, jobs: int) -> None:
        self.sqlite = ledger.store.dialect == "sqlite"
        self.url, self.jobs = ledger.store.url, jobs
        self.end = int(ledger.store.now().timestamp())

    def numbers(self, count: int) -> str:
        if self.sqlite:
            return (
                f"(WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {count}) SELECT i FROM s)"
            )
        return f"(SELECT generate_series(1, {count}) AS i)"

    def time(self, seconds: str) -> str:
        """Return the SQL of a time, so many seconds before the end."""
        if self.sqlite:
            return f"strftime('%Y-%m-%dT%H:%M:%f000Z', {self.end} - ({seconds}), 'unixepoch')"
        return f"to_timestamp({self.end} - ({seconds}))"

    def statements(self) -> Iterator[str]:
        n = self.jobs
        back = f"({n} - i) / {float(PER_SECOND)}"
        at = self.time(back)
        state = (
            f"CASE WHEN i > {n - PENDING} THEN 'pending' WHEN i % 100 = 0 THEN 'failed'"
            " WHEN i % 1000 = 1 THEN 'quarantined' ELSE 'succeeded' END"
        )
        operation = f"CASE WHEN i = {RARE} THEN 'rare' ELSE 'op' || (i % {OPERATIONS}) END"
        yield (
            "INSERT INTO holdfast_calls (job_id, max_attempts, replay_attempts, operation_version, client, key,"
            " created_at, digest, payload)"
            f" SELECT i, 3, 5, '1.0.0', CASE WHEN i = {RARE} THEN 'rare' ELSE 'client' || (i % 4) END,"
            f" 'key-' || i, {at}, 'sha256:0', '{{\"order\":' || i || '}}' FROM {self.numbers(n)} s"
        )
        yield (
            "INSERT INTO holdfast_jobs (job_id, version, attempts, operation, queue, state, status, event, actor,"
            " move_id, lease_token, lease_owner, run_at, due_at, updated_at, last_attempt_at, started_at, resting,"
            " result, last_error_code, last_error_message, quarantine_code)"
            " SELECT i, CASE state WHEN 'pending' THEN 1 ELSE 3 END, CASE state WHEN 'pending' THEN 0 ELSE 1 END,"
            f" {operation}, 'queue' || (i % {QUEUES}), state, CASE state WHEN 'succeeded' THEN 'DONE' END,"
            " CASE state WHEN 'pending' THEN 'submit' WHEN 'failed' THEN 'fail' WHEN 'quarantined' THEN 'quarantine'"
            " ELSE 'succeed' END, 'bench', 'm' || i, CASE state WHEN 'pending' THEN NULL ELSE i END,"
            f" CASE state WHEN 'pending' THEN NULL ELSE 'worker' END, {at}, CASE state WHEN 'pending' THEN {at} END,"
            f" {at}, CASE state WHEN 'pending' THEN NULL ELSE {at} END,"
            f" CASE state WHEN 'pending' THEN NULL ELSE {at} END,"
            " CASE WHEN state IN ('failed', 'quarantined') THEN state END, CASE state WHEN 'succeeded' THEN 'null' END,"
            " CASE WHEN state IN ('failed', 'quarantined') THEN 'http_' || (500 + i / 100 % 4) END,"
            " CASE WHEN state IN ('failed', 'quarantined') THEN 'POST /v1/orders/' || i || ' answered 503' END,"
            " CASE state WHEN 'quarantined' THEN 'poison' END"
            f" FROM (SELECT i, {state} AS state FROM {self.numbers(n)} s) s"
        )
        ended = "CASE WHEN i % 100 = 0 THEN 'failed' WHEN i % 1000 = 1 THEN 'quarantined' ELSE 'succeeded' END"
        moves = (
            (1, "NULL", "'pending'", "'submit'", "true"),
            (2, "'pending'", "'running'", "'claim'", f"i <= {n - PENDING}"),
            (3, "'running'", ended, "'succeed'", f"i <= {n - PENDING}"),
        )
        for version, source, target, event, which in moves:
            yield (
                "INSERT INTO holdfast_journal (seq, epoch, xid, subject, version, machine, source, target, event,"
                f" actor, move_id, at) SELECT (i - 1) * 3 + {version}, 1, 0, i, {version}, 'JOB', {source}, {target},"
                f" {event}, 'bench', 'm' || i, {at} FROM {self.numbers(n)} s WHERE {which}"
            )
        hours = min(48 * 60, max(1, n // PER_SECOND // 60))
        minute = self.time(f"{self.end % 60} + m.i * 60")
        a_minute = PER_SECOND * 60 // OPERATIONS
        for source, target, event, code, share in (
            ("''", "'pending'", "'submit'", "''", 1),
            ("'pending'", "'running'", "'claim'", "''", 1),
            ("'running'", "'succeeded'", "'succeed'", "''", 1),
            ("'running'", "'failed'", "'fail'", "'http_503'", 100),
            ("'running'", "'pending'", "'retry'", "'http_503'", 50),
        ):
            yield (
                "INSERT INTO holdfast_minutes (minute, operation, queue, source, target, event, code, n)"
                f" SELECT {minute}, 'op' || o.i, 'queue' || (o.i % {QUEUES}), {source}, {target}, {event}, {code},"
                f" {max(1, a_minute // share)} FROM {self.numbers(hours)} m CROSS JOIN"
                f" (SELECT i - 1 AS i FROM {self.numbers(OPERATIONS)} a) o"
            )

    def moves(self, count: int) -> str:
        return (
            "INSERT INTO holdfast_count_deltas (operation, queue, source, target, n, event, at)"
            f" SELECT 'op' || (i % {OPERATIONS}), 'queue' || (i % {QUEUES}), NULL, 'pending', 1, 'submit',"
            f" {self.time('5')} FROM {self.numbers(count)} s"
        )

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """Yield a connection on which no trigger fires; the triggers are as before afterwards."""
        if self.sqlite:
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)) as file:
                file.executescript("PRAGMA synchronous=OFF; PRAGMA cache_size=-200000; PRAGMA wal_autocheckpoint=20000")
                triggers = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
                for name, _ in triggers:
                    file.execute(f"DROP TRIGGER {name}")
                yield file
                for _, sql in triggers:
                    file.execute(sql)
            return
        with psycopg.connect(self.url, autocommit=True) as server:
            triggers = server.execute(
                "SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled = 'A'"
            ).fetchall()
            for table, name in triggers:
                server.execute(f"ALTER TABLE {table} DISABLE TRIGGER {name}")
            yield server
            for table, name in triggers:
                server.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}")


def fill(ledger: Ledger, jobs: int) -> None:
    """Write `jobs` finished jobs with their journal and their minutes into an empty ledger."""
    writer = _Writer(ledger, jobs)
    with writer.writing() as connection:
        for statement in writer.statements():
            connection.execute(statement)
        if not writer.sqlite:
            for table, column in (("holdfast_calls", "job_id"), ("holdfast_journal", "seq")):
                connection.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), (SELECT max({column}) FROM {table}))"
                )
    with ledger.store.transaction() as transaction:
        transaction.counts.recount()
        for number in range(4):
            transaction.workers.seen(f"worker-{number}", ["queue0", "queue1"], ["op0@1.0.0"], 8)
    settle(ledger)


def move(ledger: Ledger, count: int) -> int:
    """Write the deltas of that many submits while no worker runs, and as many more as stay; return how many stay."""
    writer = _Writer(ledger, 1)
    for moves in (*[BATCH] * (count // BATCH), FOLD_EVERY - 1):
        with ledger.store.transaction() as transaction:
            transaction.execute(writer.moves(moves))
    with ledger.store.reading() as reading:
        [[unfolded]] = reading.execute("SELECT count(*) FROM holdfast_count_deltas")
    return int(unfolded)


# ---------------------------------------------------------------------------------------------------------------------
# Measuring


def pages(jobs: int) -> list[str]:
    """Return the addresses of the pages, and of what else is read often."""
    middle = jobs // 2 - jobs // 2 % 100
    return [
        "/",
        "/jobs",
        f"/jobs?before={middle}",
        *(f"/jobs?state={state}" for state in ("pending", "running", "succeeded", "failed", "quarantined")),
        "/jobs?operation=rare",
        "/jobs?client=rare&state=succeeded",
        "/jobs?state=failed&code=none_such",
        "/jobs?since=2h+ago&queue=queue1",
        f"/jobs/{middle + 3}",
        f"/jobs/{middle}",
        "/failures",
        "/queues",
        "/queues/queue1",
        "/workers",
        "/schedules",
        "/quarantine",
        "/replays",
        "/replays/new",
        "/switches",
        "/grants",
        "/journal",
        "/journal?machine=GRANT",
        "/checks",
        "/machines",
        f"/find?q=key-{middle}",
        "/find?q=http_503",
        "/api/v1/stats",
        "/api/v1/jobs?state=failed&limit=50",
        "/metrics",
    ]


def measure(ledger: Ledger, database: str, jobs: int, unfolded: int, *, samples: int) -> list[PageTime]:
    """Return the time of each page."""
    from holdfast.console.app import create_app  # noqa: PLC0415 - only this suite needs the extra
    from holdfast.console.settings import ConsoleSettings  # noqa: PLC0415
    from tests.console.sites import ORIGIN, Transport  # noqa: PLC0415

    app = create_app(ledger, ConsoleSettings(origins=(ORIGIN,), open_to_all=True))
    app.state.live.begin()  # as the server does before it listens
    found = []
    with httpx.Client(transport=Transport(app), base_url=ORIGIN, timeout=600) as client:
        for page in pages(jobs):
            taken, used = [], []
            for _ in range(samples):
                app.state.live.expire()
                began, cpu_began = time.perf_counter(), time.process_time()
                answer = client.get(page, follow_redirects=False)
                taken.append((time.perf_counter() - began) * 1000)
                used.append((time.process_time() - cpu_began) * 1000)
                assert answer.status_code in (200, 303), (page, answer.status_code, answer.text[:500])
            *_, second, slow = sorted(taken)
            found.append(
                PageTime(
                    database=database,
                    jobs=jobs,
                    unfolded=unfolded,
                    page=page,
                    median_ms=statistics.median(taken),
                    next_ms=second,
                    slow_ms=slow,
                    cpu_ms=statistics.median(used),
                    met=slow < LIMIT_MS,
                )
            )
    app.state.console.close()
    return found


def run(databases: Sequence[str], *, quick: bool, path: Path, sizes: Sequence[int] = ()) -> None:
    """Measure the pages on these databases, print a table for each, and write the figures to `path`."""
    console = Console(width=118)
    jobs = sizes[-1] if sizes else JOBS_QUICK if quick else JOBS
    samples = 3 if quick else SAMPLES
    figures: list[PageTime] = []
    for database in databases:
        with _ledger(database) as ledger:
            began = time.monotonic()
            fill(ledger, jobs)
            console.print(f"{NAMES[database]}: {jobs:,} jobs written in {time.monotonic() - began:.0f} s")
            figures += measure(ledger, database, jobs, 0, samples=samples)
            unfolded = move(ledger, MOVES_QUICK if quick else MOVES)
            figures += measure(ledger, database, jobs, unfolded, samples=samples)
        console.print(_table(database, [one for one in figures if one.database == database], unfolded))
    result = {
        "suite": "console",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "figures": figures,
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    console.print(f"Figures: {path}")


@contextmanager
def _ledger(database: str) -> Iterator[Ledger]:
    if database == "postgres":
        with Server(settings=SERVER_SETTINGS) as server, Ledger(server.create_database()) as ledger:
            yield ledger
        return
    directory = tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=tmpfs_directory())
    with directory as name, Ledger(f"{name}/console.db") as ledger:
        yield ledger


def _table(database: str, figures: Sequence[PageTime], unfolded: int) -> Table:
    what = "milliseconds of a page (median; slowest but one; slowest; processor)"
    title = f"{NAMES[database]}: {what}, {figures[0].jobs:,} jobs"
    table = Table(title=title, box=SIMPLE, title_justify="left")
    table.add_column("page", no_wrap=True)
    table.add_column("folded", justify="right")
    table.add_column(f"{unfolded:,} deltas", justify="right")
    table.add_column(f"under {LIMIT_MS:g}")
    for page in dict.fromkeys(one.page for one in figures):
        both = [one for one in figures if one.page == page]
        verdict = "met" if all(one.met for one in both) else "MISSED"
        table.add_row(
            page,
            *(f"{one.median_ms:.0f}; {one.next_ms:.0f}; {one.slow_ms:.0f}; {one.cpu_ms:.0f}" for one in both),
            verdict,
        )
    return table
