"""Holdfast beside its peers: the same scenarios, interleaved in one run, on one simulated disk.

Every system runs in its own child process and environment, with full durability, and measures only the work itself,
not the start. Holdfast runs through its public API and its real worker, with journal and triggers on.

Invariants: rounds alternate between the systems, so a slower moment of the machine affects all of them; figures are
medians of rounds; the table shows each target, met or missed; a peer that fails is shown with its failure.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.cases import BROKERS, ENGINE, HOLDFAST, LOAD, RIVALS, SYSTEMS, Case, Figure, Verdict, verdicts
from benchmarks.databases import SERVER_SETTINGS
from benchmarks.disk import SimulatedDisk
from benchmarks.peers.redis_server import redis_server
from benchmarks.peers.run import MeasureError, measure
from benchmarks.peers.venvs import PeerUnavailable
from tests.support.postgres import Server, tmpfs_directory

SERVER = "HOLDFAST_BENCH_SERVER"  # the process whose CPU is that of the server
MIXED_S, MIXED_QUICK_S = 6, 1


def run(databases: Sequence[str], *, quick: bool, path: Path, only: Sequence[str] = ()) -> None:
    """Measure the main table on these databases, print it, and write the figures as JSON; `only`: these systems."""
    compare("engine", ENGINE, databases, quick=quick, path=path, only=only)


def run_load(databases: Sequence[str], *, quick: bool, path: Path, only: Sequence[str] = ()) -> None:
    """Measure mixed load, failing jobs and large payloads."""
    compare("load", LOAD, databases, quick=quick, path=path, only=only)


def run_brokers(databases: Sequence[str], *, quick: bool, path: Path, only: Sequence[str] = ()) -> None:
    """Measure the systems on Redis, which syncs always or every second, with Holdfast beside them."""
    compare("brokers", BROKERS, (*databases, "redis-always", "redis-everysec"), quick=quick, path=path, only=only)


def compare(
    suite: str, cases: Sequence[Case], databases: Sequence[str], *, quick: bool, path: Path, only: Sequence[str] = ()
) -> None:
    """Measure these cases on these databases, print a table for each, and write the figures as JSON."""
    figures: list[Figure] = []
    found: list[Verdict] = []
    with SimulatedDisk() as disk:
        for database in databases:
            # Beside the brokers only Holdfast is measured on a database of its own.
            kept = (HOLDFAST,) if suite == "brokers" and HOLDFAST in SYSTEMS[database] else only
            with place(database, disk.env()) as (url, env):
                figures += _measure(database, cases, url, env, quick=quick, only=kept)
            found += verdicts(database, cases, figures)
    result = {
        "suite": suite,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "cpus": os.cpu_count(),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "sync_us": disk.sync_us,
        "figures": figures,
        "verdicts": [{name: getattr(verdict, name) for name in Verdict.__struct_fields__} for verdict in found],
    }
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for database in databases:
        _print(database, cases, figures, found)


@contextmanager
def place(database: str, env: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the URL of a database on the simulated disk, and the environment for its clients."""
    if database == "postgres":
        with Server(env=env, settings=SERVER_SETTINGS) as server:
            yield server.create_database(), env | {SERVER: str(server.pid)}
    elif database.startswith("redis-"):
        with redis_server(database.removeprefix("redis-"), env) as (url, pid):
            yield url, env | {SERVER: str(pid)}
    else:
        with tempfile.TemporaryDirectory(dir=tmpfs_directory()) as folder:
            yield str(Path(folder) / "bench.db"), env


def _measure(
    database: str, cases: Sequence[Case], url: str, env: Mapping[str, str], *, quick: bool, only: Sequence[str]
) -> list[Figure]:
    figures: list[Figure] = []
    best: dict[str, Any] = {}  # the fastest setting of each system, found by its first drain
    for case in cases:
        systems = [system for system in case.systems(database) if not only or system in only]
        rounds: dict[str, list[Figure]] = {system: [] for system in systems}
        for turn in range(1 if quick else case.rounds):
            for system, results in rounds.items():
                # The others are shown; they are measured again only in the lone submit, where they are close.
                if turn == 0 or system in RIVALS or (case.scenario, case.callers) == ("submit", 1):
                    results.append(_one(system, case, url, env, best.get(system), quick=quick))
                    if case.scenario == "drain" and results[-1].get("setting"):
                        best.setdefault(system, results[-1]["setting"])
        for system, results in rounds.items():
            figures.append({"database": database, "case": case.name, "system": system, **_median(results)})
            print(json.dumps(figures[-1]), file=sys.stderr, flush=True)
    return figures


def _one(
    system: str, case: Case, url: str, env: Mapping[str, str], setting: int | None, *, quick: bool
) -> dict[str, Any]:
    options: dict[str, object] = {"url": url, "n": case.jobs(system, quick=quick)}
    options |= {"callers": case.callers, "processes": case.processes, "payload": case.payload, "rate": case.rate}
    options |= {"concurrency": setting, "seconds": MIXED_QUICK_S if quick else MIXED_S}
    try:
        return measure(system, case.scenario, env, **options)
    except (MeasureError, PeerUnavailable) as error:
        if system == HOLDFAST:
            raise
        print(error, file=sys.stderr, flush=True)
        return {"version": "", "failed": str(error).splitlines()[-1][:200]}


def _median(results: Sequence[Figure]) -> Figure:
    """Return the median of every number, and the last value of every other field."""
    good = [result for result in results if "failed" not in result] or list(results)
    merged = dict(good[-1])
    for name, value in merged.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            merged[name] = statistics.median(result[name] for result in good)
    return {**merged, "rounds": len(good)}


def _print(database: str, cases: Sequence[Case], figures: Sequence[Figure], found: Sequence[Verdict]) -> None:
    columns = ("case", "system", "jobs/s", "client µs", "server µs", "fsyncs", "WAL B", "disk B", "p50/p95 or p99 ms")
    table = Table(*columns, "MB", "Holdfast is", "targets", box=SIMPLE)
    for case in cases:
        rows = [f for f in figures if (f["database"], f["case"]) == (database, case.name)]
        ours = next((row for row in rows if row["system"] == HOLDFAST), {})
        for row in rows:
            first = row is rows[0]
            table.add_row(
                case.name if first else "",
                f"{row['system']} {row['version']}",
                row.get("failed") or number(row.get("per_second")),
                *(number(row.get(name)) for name in ("client_us", "server_us", "fsyncs_per_job")),
                number(row.get("life_wal_per_job") or row.get("wal_per_job")),
                number(row.get("life_disk_per_job") or row.get("disk_per_job")),
                latencies(row),
                number(row.get("rss_mb")),
                ratio(ours, row),
                "; ".join(said(v) for v in found if (v.database, v.case) == (database, case.name)) if first else "",
            )
    Console(width=190).print(table, f"{database}: medians, 1 ms a sync; WAL and disk of a drained job from its submit")


def said(verdict: Verdict) -> str:
    peer = f" ({verdict.peer})" if verdict.peer else ""
    return f"{verdict.target}{peer}: {number(verdict.value)} {'met' if verdict.met else 'MISSED'}"


def ratio(ours: Figure, theirs: Figure) -> str:
    """Return how many times as fast Holdfast is as this peer."""
    if theirs is ours or not ours.get("per_second") or not theirs.get("per_second"):
        return ""
    return f"{ours['per_second'] / theirs['per_second']:.2f} times"


def latencies(row: Figure) -> str:
    names = [name for name in ("p50_ms", "p95_ms", "p99_ms", "p99.9_ms") if name in row]
    return " / ".join(number(row[name]) for name in names)


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
