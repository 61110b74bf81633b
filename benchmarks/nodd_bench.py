"""How fast NOAA's notices are admitted and their units processed, beside a plain loop without a ledger.

Invariants: both sides parse the same messages and read the same objects from memory, run the same operators and write
the same units, items and provenance, with full durability on the simulated disk: the loop commits every ten records
when it admits and every unit when it processes. The sides alternate, round by round, in one ledger and one set of
plain tables that grow equally. The run stops if the ledger's side has not catalogued every unit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.databases import fresh_database
from benchmarks.disk import SimulatedDisk
from benchmarks.peers._common import fsyncs
from holdfast import Ledger
from holdfast.core.digest import canonical
from holdfast.nodd import governance, integrity, metadata, provenance, samples, stac, validity
from holdfast.nodd.admission import FeedMessage, admit
from holdfast.nodd.dataset import shipped
from holdfast.nodd.governance import GovernanceRules
from holdfast.nodd.ingest import IngestSettings, declare
from holdfast.nodd.ingest_attempt import SOFTWARE
from holdfast.nodd.notices import parse
from holdfast.nodd.objects import ObjectHead, ObjectReader
from holdfast.nodd.tables import prepare
from holdfast.nodd.units import Operator, Unit, unit_of
from holdfast.store import create_store
from tests.nodd.messages import event, record
from tests.nodd.objects import MemorySource

ROOT = Path(__file__).parents[1]
ROUNDS, UNITS = 5, 1_000
ROUNDS_QUICK, UNITS_QUICK = 1, 40
LONG, LONG_QUICK = 100_000, 200
BATCH = 10
CONCURRENCY = 8  # the default of `holdfast nodd run`
ADMISSION, PROCESSING = 0.5, 0.7
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
BUCKET = "noaa-gfs-bdp-pds"
REFERENCE = datetime(2026, 7, 26, tzinfo=UTC)
PLAIN = (
    "CREATE TABLE plain_units (wal_id text PRIMARY KEY, unit text NOT NULL, status text NOT NULL)",
    "CREATE TABLE plain_items (item_id text PRIMARY KEY, item text NOT NULL, content text NOT NULL)",
    "CREATE TABLE plain_provenance (record_id text PRIMARY KEY, content text NOT NULL)",
)

Figure = dict[str, Any]


def run(databases: Sequence[str], *, quick: bool, path: Path) -> None:
    """Measure how fast these databases are, print the table, and write the figures as JSON."""
    figures = _figures("speed", databases, quick=quick, path=path)
    table = Table("database", "what", "ledger/s", "plain/s", "ratio", "target", "fsyncs a unit", "plain", box=SIMPLE)
    for figure in figures:
        for what, target in (("admission", ADMISSION), ("processing", PROCESSING)):
            ledger, plain, ratio = figure[what]["ledger"], figure[what]["plain"], figure[what]["ratio"]
            met = "met" if ratio >= target else "FALLS SHORT"
            table.add_row(
                NAMES[figure["database"]], what, f"{ledger['per_s']:,.0f}", f"{plain['per_s']:,.0f}", f"{ratio:.2f}",
                f"{target} {met}", f"{ledger['fsyncs']:.3f}", f"{plain['fsyncs']:.3f}",
            )  # fmt: skip
    Console(width=118).print(table)


def run_memory(databases: Sequence[str], *, quick: bool, path: Path) -> None:
    """Measure the memory of a long run, print the table, and write the figures as JSON."""
    table = Table("database", "units", "MB at a tenth", "MB at half", "MB at the end", box=SIMPLE)
    for figure in _figures("memory", databases, quick=quick, path=path):
        samples = (f"{figure['rss_mb'][part]:.1f}" for part in (0, 4, 9))
        table.add_row(NAMES[figure["database"]], f"{figure['units']:,}", *samples)
    Console(width=118).print(table)


def _figures(what: str, databases: Sequence[str], *, quick: bool, path: Path) -> list[Figure]:
    figures: list[Figure] = []
    with SimulatedDisk() as disk:
        for database in databases:
            with fresh_database(database, disk) as url:
                command = [sys.executable, "-m", "benchmarks.nodd_bench", what, database, url]
                command += ["--quick"] if quick else []
                done = subprocess.run(command, env=disk.env(), cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
            figures.append(json.loads(done.stdout))
    machine = {"machine": platform.platform(), "python": platform.python_version(), "quick": quick}
    path.write_text(json.dumps({**machine, "figures": figures}, indent=1) + "\n", encoding="utf-8")
    return figures


def speed(database: str, url: str, *, quick: bool) -> Figure:
    """Return what each side admits and processes in a second."""
    rounds, units = (ROUNDS_QUICK, UNITS_QUICK) if quick else (ROUNDS, UNITS)
    taken: dict[str, list[tuple[float, int]]] = {}
    source = _Everywhere()
    with _ledger(url, source) as ledger, _plain(database, url) as plain:
        for number in range(rounds):
            bodies = source.notices(number * units, units)
            steps: dict[str, Callable[[], object]] = {
                "plain admission": partial(plain.admit, bodies),
                "ledger admission": partial(_admit, ledger, bodies),
                "plain processing": partial(plain.process, source),
                "ledger processing": partial(ledger.run_until_idle, concurrency=CONCURRENCY),
            }
            for name, step in steps.items():
                taken.setdefault(name, []).append(_measured(step))
        _require_items(ledger, rounds * units)
    compared = {what: _compared(taken, what, units) for what in ("admission", "processing")}
    return {"database": database, "units": rounds * units, **compared}


def memory(database: str, url: str, *, quick: bool) -> Figure:
    """Return what this process holds after each tenth of many units that were admitted and processed."""
    units = LONG_QUICK if quick else LONG
    part = units // 10
    source = _Everywhere()
    held = []
    with _ledger(url, source) as ledger:
        for start in range(0, units, part):
            _admit(ledger, source.notices(start, part))
            ledger.run_until_idle(concurrency=CONCURRENCY)
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
            held.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        _require_items(ledger, units)
    return {"database": database, "units": units, "rss_mb": held}


def _compared(taken: dict[str, list[tuple[float, int]]], what: str, units: int) -> Figure:
    sides = {
        side: {
            "per_s": units / statistics.median(seconds for seconds, _ in taken[f"{side} {what}"]),
            "fsyncs": statistics.median(synced for _, synced in taken[f"{side} {what}"]) / units,
        }
        for side in ("ledger", "plain")
    }
    ratios = [
        plain / ledger for (ledger, _), (plain, _) in zip(taken[f"ledger {what}"], taken[f"plain {what}"], strict=True)
    ]
    return {**sides, "ratio": statistics.median(ratios), "ratios": ratios}


def _measured(step: Callable[[], object]) -> tuple[float, int]:
    synced, began = fsyncs(), time.perf_counter()
    step()
    return time.perf_counter() - began, fsyncs() - synced


@contextmanager
def _ledger(url: str, source: _Everywhere) -> Iterator[Ledger]:
    create_store(url).close()
    with Ledger(url) as ledger:
        prepare(ledger.store)
        declare(ledger, IngestSettings(datasets=shipped(), source=source))
        yield ledger


def _require_items(ledger: Ledger, units: int) -> None:
    with ledger.store.reading() as reading:
        [[items]] = reading.execute("SELECT count(*) FROM nodd_items")
    assert items == units, (items, units)


def _admit(ledger: Ledger, bodies: Sequence[str]) -> None:
    for start in range(0, len(bodies), BATCH):
        admit(ledger.store, [FeedMessage(body) for body in bodies[start : start + BATCH]], shipped())


class _Everywhere(MemorySource):
    """A source that returns the same object for every key, so that the memory of the benchmark does not grow."""

    def __init__(self) -> None:
        super().__init__()
        self._data = samples.grib2(REFERENCE, 3)
        self._etag = self.put(BUCKET, "any", self._data)

    def notices(self, first: int, n: int) -> list[str]:
        """Return messages that announce `n` objects."""
        keys = [f"gfs.{REFERENCE:%Y%m%d}/00/atmos/gfs.t00z.p{each}.0p25.f003" for each in range(first, first + n)]
        return [event(record(key=key, size=len(self._data), eTag=self._etag)) for key in keys]

    def head(self, bucket: str, key: str) -> ObjectHead | None:  # noqa: ARG002 - every object is the same
        """Return the head of the object."""
        return super().head(BUCKET, "any")

    def read(self, bucket: str, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:  # noqa: ARG002
        """Return a part of the object."""
        return super().read(BUCKET, "any", start, length, etag=etag)


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
            [notice] = parse(body, shipped()).notices
            unit = unit_of(notice)
            self._connection.execute(insert, (unit.wal_id, canonical(msgspec.to_builtins(unit)), "pending"))
            if number % BATCH == 0:
                self._connection.commit()
        self._connection.commit()

    def process(self, source: ObjectReader) -> None:
        """Run the operators on each unit and write their results; commit every unit."""
        rows = self._connection.execute("SELECT unit FROM plain_units WHERE status = 'pending'").fetchall()
        for (text,) in rows:
            self._one(msgspec.json.decode(text, type=Unit), source)

    def _one(self, unit: Unit, source: ObjectReader) -> None:
        dataset, now = shipped()[unit.dataset], datetime.now(UTC)
        checked = integrity.check(unit, dataset, source, [], now)
        learned = metadata.extract(unit, dataset, source, checked)
        verdicts = {Operator.INTEGRITY: checked, Operator.METADATA: learned}
        assert governance.gate(unit, dataset, verdicts, GovernanceRules()).status == governance.PASS
        stamp = now.isoformat()
        item = stac.item_of(unit, dataset, checked, learned, created=stamp, updated=stamp)
        assert validity.problems(item) == []
        facts = provenance.RunFacts(job_id=1, attempt=1, software=SOFTWARE, at=unit.time_range_start)
        made = provenance.records_of(*provenance.described(unit, dataset, verdicts, item, run=facts))
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


MEASURES = {"speed": speed, "memory": memory}


def _main() -> None:
    parser = argparse.ArgumentParser(description="Measure one database; the caller provides the simulated disk.")
    parser.add_argument("what", choices=MEASURES)
    parser.add_argument("database", choices=NAMES)
    parser.add_argument("url")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    print(json.dumps(MEASURES[args.what](args.database, args.url, quick=args.quick)))


if __name__ == "__main__":
    _main()
