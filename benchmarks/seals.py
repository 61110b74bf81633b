"""How fast seals are verified, beside a bare loop that reads and hashes the same rows.

Invariants: both sides read every row of one journal, alternately, in one process; the run stops if the verification
finds a violation or another number of rows than the bare loop; the journal is a real one, of jobs that were submitted,
claimed and completed, sealed in blocks of the usual size.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from holdfast.audit.seals.sealer import seal
from holdfast.audit.seals.verify import verify
from holdfast.core.commands import Complete
from holdfast.store import Lease, Store, Submission, create_store
from tests.support.postgres import Server, tmpfs_directory

JOBS, JOBS_QUICK = 30_000, 200
BATCH = 1000
ROUNDS, ROUNDS_QUICK = 7, 1
TARGET = 0.3
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
ALL_ROWS = (
    "SELECT seq, epoch, xid, machine, subject, version, source, target, event, actor, reason, attempt, move_id,"
    " grant_id, maintenance_id, at FROM holdfast_journal ORDER BY seq"
)

Figure = dict[str, float | str | int]


def run(databases: Sequence[str], *, quick: bool, path: Path) -> None:
    """Measure these databases, print the table, and write the figures as JSON."""
    figures = []
    for database in databases:
        with _database(database) as url:
            figures.append(measure(database, url, quick=quick))
    machine = {"machine": platform.platform(), "python": platform.python_version(), "quick": quick}
    path.write_text(json.dumps({**machine, "figures": figures}, indent=1) + "\n", encoding="utf-8")
    table = Table("database", "rows", "seals", "sealed rows/s", "verified rows/s", "bare rows/s", "ratio", "target")
    table.box = SIMPLE
    for figure in figures:
        met = "met" if float(figure["ratio"]) >= TARGET else "FALLS SHORT"
        table.add_row(
            NAMES[str(figure["database"])],
            f"{figure['rows']:,}",
            f"{figure['seals']:,}",
            f"{figure['sealed_per_s']:,.0f}",
            f"{figure['verified_per_s']:,.0f}",
            f"{figure['bare_per_s']:,.0f}",
            f"{figure['ratio']:.2f}",
            "" if quick else f"at least {TARGET:g}: {met}",
        )
    rounds = ROUNDS_QUICK if quick else ROUNDS
    Console(width=118).print(table, f"Verification beside a loop that reads and hashes: medians of {rounds} rounds")


@contextmanager
def _database(database: str) -> Iterator[str]:
    if database == "postgres":
        with Server() as server:
            yield server.create_database()
        return
    directory = tempfile.mkdtemp(prefix="holdfast-bench-", dir=tmpfs_directory())
    try:
        yield f"sqlite:///{directory}/ledger.db"
    finally:
        shutil.rmtree(directory)


def measure(database: str, url: str, *, quick: bool) -> Figure:
    """Return the medians of rounds in which both sides alternate."""
    with create_store(url) as store:
        _work(store, JOBS_QUICK if quick else JOBS)
        sealed_s, seals = _timed(lambda: len(seal(store)))
        with store.reading() as reading:
            rows = reading.seals.sealed_rows(seals)
        verified, bare = [], []
        for _ in range(ROUNDS_QUICK if quick else ROUNDS):
            seconds, report = _timed(lambda: verify(store))
            assert (report.ok, report.sealed, report.unsealed) == (True, rows, 0), report
            verified.append(seconds)
            seconds, hashed = _timed(lambda: _hash_all(url))
            assert hashed == rows, (hashed, rows)
            bare.append(seconds)
    verify_s, bare_s = statistics.median(verified), statistics.median(bare)
    return {
        "database": database,
        "rows": rows,
        "seals": seals,
        "sealed_per_s": rows / sealed_s,
        "verified_per_s": rows / verify_s,
        "bare_per_s": rows / bare_s,
        "ratio": bare_s / verify_s,
    }


def _timed(act: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = act()
    return time.perf_counter() - began, answer


def _work(store: Store[Any], jobs: int) -> None:
    for _ in range(0, jobs, BATCH):
        n = min(BATCH, jobs)
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}") for _ in range(n)], actor="bench")
        with store.transaction() as transaction:
            attempts = transaction.executions.claim(Lease(owner="bench", seconds=600, n=n))
            transaction.executions.move([(a, Complete(a.execution.lease_token)) for a in attempts], actor="bench")


def _hash_all(url: str) -> int:
    """Read every row with a plain connection, hash it, and return how many there were."""
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            return _hashed(connection.execute(ALL_ROWS))
    plain = sqlite3.connect(urlsplit(url).path[1:])
    try:
        return _hashed(plain.execute(ALL_ROWS))
    finally:
        plain.close()


def _hashed(rows: Iterable[tuple[Any, ...]]) -> int:
    digest, encode, n = hashlib.sha256(), msgspec.json.encode, 0
    for row in rows:
        digest.update(encode(row))
        digest.update(b"\n")
        n += 1
    return n
