"""How fast NOAA's notices are admitted and their units processed, beside a plain loop without a ledger.

Invariants: both sides parse the same messages and read the same objects from memory, run the same operators and write
the same rows, with full durability: the loop commits every ten records when it admits and every unit when it processes.
The ledger's side must end with every unit catalogued, or the run stops.
"""

from __future__ import annotations

import json
import platform
import resource
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from holdfast import Ledger
from holdfast.core.digest import canonical
from holdfast.nodd import integrity, metadata, provenance, specimens, stac
from holdfast.nodd.admission import Message, admit
from holdfast.nodd.dataset import shipped
from holdfast.nodd.ingest import SOFTWARE, Settings, declare
from holdfast.nodd.notices import parsed
from holdfast.nodd.tables import prepare
from holdfast.nodd.units import Operator, Unit, unit_of
from holdfast.store import create_store
from tests.nodd.messages import event, record
from tests.nodd.objects import MemorySource
from tests.support.postgres import Server, tmpfs_directory

UNITS, UNITS_QUICK = 2_000, 40
BATCH = 10
ADMISSION, PROCESSING = 0.5, 0.7
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
BUCKET = "noaa-gfs-bdp-pds"
REFERENCE = datetime(2026, 7, 26, tzinfo=UTC)
PLAIN = (
    "CREATE TABLE plain_units (wal_id text PRIMARY KEY, unit text NOT NULL, status text NOT NULL)",
    "CREATE TABLE plain_items (item_id text PRIMARY KEY, item text NOT NULL, content text NOT NULL)",
    "CREATE TABLE plain_provenance (record_id text PRIMARY KEY, content text NOT NULL)",
)

Figure = dict[str, float | str | int]


def run(databases: Sequence[str], *, quick: bool, path: Path) -> None:
    """Measure these databases, print the table, and leave the figures as JSON."""
    figures = []
    for database in databases:
        with _database(database) as url:
            figures.append(measure(database, url, UNITS_QUICK if quick else UNITS))
    machine = {"machine": platform.platform(), "python": platform.python_version(), "quick": quick}
    path.write_text(json.dumps({**machine, "figures": figures}, indent=1) + "\n", encoding="utf-8")
    table = Table("database", "what", "ledger units/s", "plain units/s", "ratio", "target", title="NOAA's open data")
    table.box = SIMPLE
    for figure in figures:
        for what, target in (("admission", ADMISSION), ("processing", PROCESSING)):
            ratio = float(figure[f"{what}_ratio"])
            met = "met" if ratio >= target else "FALLS SHORT"
            ours, plain = figure[f"{what}_ledger"], figure[f"{what}_plain"]
            name = NAMES[str(figure["database"])]
            table.add_row(name, what, f"{ours:,.0f}", f"{plain:,.0f}", f"{ratio:.2f}", f"{target} {met}")
    Console().print(table)


def measure(database: str, url: str, units: int) -> Figure:
    """Return how many units a second each side admits and processes."""
    source, bodies = MemorySource(), []
    for number in range(units):
        key = f"gfs.{REFERENCE:%Y%m%d}/00/atmos/gfs.t00z.p{number}.0p25.f003"
        data = specimens.grib2(REFERENCE, 3)
        etag = source.put(BUCKET, key, data)
        bodies.append(event(record(key=key, size=len(data), eTag=etag)))
    with _plain(database, url) as plain:
        plain_admitted = _timed(lambda: plain.admit(bodies))
        plain_processed = _timed(lambda: plain.process(source))
    create_store(url).close()
    with Ledger(url) as ledger:
        prepare(ledger.store)
        declare(ledger, Settings(datasets=shipped(), source=source))
        admitted = _timed(lambda: _admit(ledger, bodies))
        processed = _timed(lambda: ledger.run_until_idle(concurrency=4))
        with ledger.store.reading() as reading:
            [[items]] = reading.execute("SELECT count(*) FROM nodd_items")
        assert items == units, (items, units)
    return {
        "database": database,
        "units": units,
        "admission_ledger": units / admitted,
        "admission_plain": units / plain_admitted,
        "admission_ratio": plain_admitted / admitted,
        "processing_ledger": units / processed,
        "processing_plain": units / plain_processed,
        "processing_ratio": plain_processed / processed,
        "max_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _timed(what: Any) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def _admit(ledger: Ledger, bodies: Sequence[str]) -> None:
    for start in range(0, len(bodies), BATCH):
        admit(ledger.store, [Message(body) for body in bodies[start : start + BATCH]], shipped())


class _Plain:
    """The same parsing, checking and writing, in a loop, without a ledger."""

    def __init__(self, connection: Any, mark: str) -> None:
        self._connection, self._mark = connection, mark
        for statement in PLAIN:
            connection.execute(statement)
        connection.commit()

    def admit(self, bodies: Sequence[str]) -> None:
        """Parse each message and write its unit once; commit every ten."""
        insert = f"INSERT INTO plain_units VALUES ({self._marks(3)}) ON CONFLICT (wal_id) DO NOTHING"
        for number, body in enumerate(bodies, start=1):
            [notice] = parsed(body, shipped()).notices
            unit = unit_of(notice)
            text = json.dumps({"wal_id": unit.wal_id, "body": body})
            self._connection.execute(insert, (unit.wal_id, text, "pending"))
            if number % BATCH == 0:
                self._connection.commit()
        self._connection.commit()

    def process(self, source: MemorySource) -> None:
        """Run the operators on each unit and write what they make; commit every unit."""
        rows = self._connection.execute("SELECT unit FROM plain_units").fetchall()
        for (text,) in rows:
            [notice] = parsed(json.loads(text)["body"], shipped()).notices
            self._one(unit_of(notice), source)

    def _one(self, unit: Unit, source: MemorySource) -> None:
        dataset, now = shipped()[unit.dataset], datetime.now(UTC)
        checked = integrity.check(unit, dataset, source, [], now)
        learned = metadata.extract(unit, dataset, source, checked)
        stamp = now.isoformat()
        item = stac.item_of(unit, dataset, checked, learned, created=stamp, updated=stamp)
        assert stac.problems(item) == []
        facts = provenance.RunFacts(
            ingest_run_id="r", job_id=1, attempt=1, replay_reason=None, software=SOFTWARE, at=unit.time_range_start
        )
        verdicts = {Operator.INTEGRITY: checked, Operator.METADATA: learned}
        made = provenance.records_of(unit, dataset, verdicts, item, run=facts)
        self._connection.execute(
            f"INSERT INTO plain_items VALUES ({self._marks(3)})",
            (item["id"], canonical(item), stac.content_digest(item)),
        )
        insert = f"INSERT INTO plain_provenance VALUES ({self._marks(2)}) ON CONFLICT (record_id) DO NOTHING"
        for one in made:
            self._connection.execute(insert, (one.record_id, one.content))
        done = f"UPDATE plain_units SET status = {self._mark} WHERE wal_id = {self._mark}"
        self._connection.execute(done, ("succeeded", unit.wal_id))
        self._connection.commit()

    def _marks(self, n: int) -> str:
        return ", ".join([self._mark] * n)


@contextmanager
def _plain(database: str, url: str) -> Iterator[_Plain]:
    if database == "postgres":
        with psycopg.connect(url) as connection:
            yield _Plain(connection, "%s")
        return
    path = Path(url.removeprefix("sqlite:///")).with_name("plain.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        yield _Plain(connection, "?")


@contextmanager
def _database(database: str) -> Iterator[str]:
    if database == "postgres":
        with Server() as server:
            yield server.create_database()
        return
    directory = Path(tempfile.mkdtemp(prefix="holdfast-nodd-", dir=tmpfs_directory()))
    try:
        yield f"sqlite:///{directory / 'ledger.db'}"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
