"""Holdfast beside its peers: the same scenarios, interleaved in one run, on one simulated disk.

Every system runs in its own child process and environment, with full durability, and measures only the work itself,
not the start. Holdfast runs through its public API and its real worker, with journal and triggers on.

Invariants: rounds alternate between the systems, so a slower moment of the machine affects all of them; figures are
medians of rounds; the table shows each target that is missed.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.disk import SimulatedDisk
from benchmarks.peers.run import measure
from tests.support.postgres import Server, tmpfs_directory

ROOT = Path(__file__).parents[1]
PEERS = {"sqlite": ("huey", "litequeue"), "postgres": ("pgqueuer", "procrastinate")}
ROUNDS, ROUNDS_QUICK = 3, 1
SERVER_SETTINGS = {"checkpoint_timeout": "1h", "max_wal_size": "4GB"}
HOLDFAST = "holdfast"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table: a scenario, its size, and the targets of Holdfast compared with its peers."""

    scenario: str
    n: int
    peer_n: int
    callers: int = 1
    targets: dict[str, tuple[str, float]] = {}  # database → (a peer or "best", the ratio to reach)

    @property
    def name(self) -> str:
        return f"{self.scenario}, {self.callers} callers" if self.scenario == "submit" else self.scenario


CASES = (
    Case(scenario="submit", n=1000, peer_n=1000, callers=1, targets={"sqlite": ("best", 1), "postgres": ("best", 1)}),
    Case(scenario="submit", n=5000, peer_n=1000, callers=10),
    Case(
        scenario="submit", n=20_000, peer_n=1500, callers=100,
        targets={"sqlite": ("best", 10), "postgres": ("best", 10)},
    ),
    Case(scenario="bulk", n=20_000, peer_n=10_000),
    Case(
        scenario="drain", n=20_000, peer_n=2000,
        targets={"sqlite": ("huey", 8), "postgres": ("pgqueuer", 0.8)},
    ),
    Case(scenario="drain-effect", n=20_000, peer_n=1500),
    Case(scenario="idle", n=100, peer_n=100),
)  # fmt: skip
ALSO = {("sqlite", "drain"): ("litequeue", 15.0), ("postgres", "drain"): ("procrastinate", 20.0)}
FAST_PEERS_N = {("pgqueuer", "drain"): 20_000, ("pgqueuer", "drain-effect"): 5000}
LIMITS = {"p50_ms": 4.0, "rss_mb": 80.0, "fsyncs_per_job": 0.05}


def run(databases: Sequence[str], *, quick: bool, path: Path) -> None:
    """Measure every case on these databases, print the tables, and write the figures as JSON."""
    figures: list[dict[str, Any]] = []
    with SimulatedDisk() as disk, tempfile.TemporaryDirectory(dir=tmpfs_directory()) as folder:
        for database in databases:
            with ExitStack() as stack:
                if database == "postgres":
                    server = stack.enter_context(Server(env=disk.env(), settings=SERVER_SETTINGS))
                    url = server.create_database()
                else:
                    url = str(Path(folder) / "bench.db")
                figures += _measure(database, url, disk.env(), quick=quick)
    path.write_text(json.dumps({"machine": platform.platform(), "figures": figures}, indent=1) + "\n", encoding="utf-8")
    for database in databases:
        _print(database, [figure for figure in figures if figure["database"] == database])


def _measure(database: str, url: str, env: dict[str, str], *, quick: bool) -> list[dict[str, Any]]:
    figures = []
    for case in CASES:
        rounds: dict[str, list[dict[str, Any]]] = {system: [] for system in (HOLDFAST, *PEERS[database])}
        for _ in range(ROUNDS_QUICK if quick else ROUNDS):
            for system, results in rounds.items():
                results.append(_one(system, case, url, env, quick=quick))
        for system, results in rounds.items():
            figures.append({"database": database, "case": case.name, "system": system, **_median(results)})
            print(json.dumps(figures[-1]), file=sys.stderr, flush=True)
    return figures


def _one(system: str, case: Case, url: str, env: dict[str, str], *, quick: bool) -> dict[str, Any]:
    n = case.n if system == HOLDFAST else FAST_PEERS_N.get((system, case.scenario), case.peer_n)
    n = max(10, n // 20) if quick else n
    if system != HOLDFAST:
        return measure(system, case.scenario, url=url, n=n, callers=case.callers, env=env)
    command = [sys.executable, "-m", "benchmarks.holdfast_driver", case.scenario]
    command += ["--url", url, "--n", str(n), "--callers", str(case.callers)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise SystemExit(f"holdfast {case.name} failed:\n{done.stdout}{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _median(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of every number, and the last value of every other field."""
    merged = dict(results[-1])
    for name, value in merged.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            merged[name] = statistics.median(result[name] for result in results)
    return merged


def _print(database: str, figures: list[dict[str, Any]]) -> None:
    table = Table(
        "case", "system", "per second", "fsyncs/job", "p50/p95 ms", "RSS MB", "holdfast is", "target", box=SIMPLE
    )
    for case in CASES:
        rows = {figure["system"]: figure for figure in figures if figure["case"] == case.name}
        for system, figure in rows.items():
            ratio, verdict = _verdict(database, case, system, rows)
            table.add_row(
                case.name if system == HOLDFAST else "",
                f"{system} {figure['version']}",
                _number(figure.get("per_second")),
                _number(figure.get("fsyncs_per_job")),
                f"{figure['p50_ms']:.1f}/{figure['p95_ms']:.1f}" if "p50_ms" in figure else "",
                _number(figure.get("rss_mb")),
                ratio,
                verdict,
            )
    Console(width=150).print(table, f"{database}: medians, 1 ms a sync, full durability everywhere")


def _verdict(database: str, case: Case, system: str, rows: dict[str, dict[str, Any]]) -> tuple[str, str]:
    ours = rows[HOLDFAST]
    if system == HOLDFAST:
        broken = [
            f"{name} {ours[name]:g} over {limit:g}"
            for name, limit in LIMITS.items()
            if name in ours and not (name == "fsyncs_per_job" and case.scenario != "drain") and ours[name] > limit
        ]
        return "", "; ".join(broken)
    theirs = rows[system].get("per_second")
    if not theirs or not ours.get("per_second"):
        return "", ""
    ratio = ours["per_second"] / theirs
    fastest = max((s for s in rows if s != HOLDFAST), key=lambda s: rows[s].get("per_second") or 0)
    wanted = [
        factor
        for peer, factor in (case.targets.get(database, ("", 0.0)), ALSO.get((database, case.scenario), ("", 0.0)))
        if peer == system or (peer == "best" and system == fastest)
    ]
    return f"{ratio:.2f} times", "".join(f"≥ {w:g}: {'met' if ratio >= w else 'FALLS SHORT'}" for w in wanted)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
