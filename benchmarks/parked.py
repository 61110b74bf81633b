"""Whether a claim needs the same time with a million parked jobs as with none: jobs of one key, and of 100,000 keys.

Every ledger has a limit of one job for each key of an operation. In one of them nothing waits; in the others a million
jobs are parked, and the slots of their keys are held. Jobs of other keys are claimed and ended, in the ledgers
alternately, so that a slower moment of the machine affects all of them. The result is the ratio of the percentiles.

Invariants: all ledgers are measured at the same time; every claim is full, and every end frees a slot.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.scale import NAMES, places, settle
from holdfast import Ledger
from holdfast.core.commands import Complete
from holdfast.core.limits import Limit
from holdfast.core.records import Attempt, time_text
from holdfast.store import Lease, Store
from holdfast.store.transaction import Transaction

T = TypeVar("T")
PARKED, PARKED_QUICK = 1_000_000, 3_000
KEYS, KEYS_QUICK = 100_000, 300
CLAIMS, CLAIMS_QUICK = 2_000, 30
WARM_UP = 30
A_CLAIM = 10
RATIO = 1.2
EMPTY, ONE, MANY = "nothing parked", "one key", "many keys"
MEASURED = ("claim", "end")


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one act in one ledger, and its ratios to the ledger without parked jobs."""

    database: str
    ledger: str
    parked: int
    act: str
    median_ms: float
    p99_ms: float
    median_ratio: float
    p99_ratio: float
    met: bool


# ---------------------------------------------------------------------------------------------------------------------
# Filling


def fill(ledger: Ledger, parked: int, keys: int) -> None:
    """Set the limit, and write parked jobs in sets, as the claim of a ledger whose slots are held leaves them."""
    store = ledger.store
    with store.transaction() as transaction:
        transaction.limits.set("key:noop", Limit(running=1, path="who"), actor="bench", reason="bench")
    if not parked:
        return
    ledger.submit_many([{"operation": "noop", "payload": {"who": n}} for n in range(keys)])
    for _ in range(0, keys, 1000):
        with store.transaction() as transaction:
            held = transaction.executions.claim(Lease(owner="holder", seconds=1e6, n=min(keys, 1000)))
        assert len(held) == min(keys, 1000), len(held)
    now, first = time_text(store.now()), 10_000_000
    source, series = f"generate_series({first}, {first + parked - 1}) n (i)", ""
    if store.dialect == "sqlite":
        source = "n"
        series = (
            f"WITH RECURSIVE n (i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {first + parked - 1}) "
        )
    with store.transaction() as transaction:
        transaction.execute(
            f"{series}INSERT INTO holdfast_calls (job_id, operation_version, client, max_attempts, replay_attempts,"
            f" payload, digest, created_at) SELECT i, '1.0.0', 'local', 1, 1, '{{}}', 'd', '{now}' FROM {source}"
        )
        transaction.execute(
            f"{series}INSERT INTO holdfast_jobs (job_id, operation, queue, priority, run_at, due_at, state, version,"
            " updated_at, event, actor, move_id, parked, limit_key)"
            f" SELECT i, 'noop', 'default', i % 3, '{now}', '{now}', 'pending', 1, '{now}', 'submit', 'local', 'm',"
            f" 'limit', 'key:noop=' || (i % {keys}) FROM {source}"
        )


# ---------------------------------------------------------------------------------------------------------------------
# Measuring


def measure(ledgers: Mapping[str, Ledger], claims: int) -> dict[str, dict[str, list[float]]]:
    """Return the milliseconds of each act by ledger, the ledgers alternately."""
    taken: dict[str, dict[str, list[float]]] = {name: {act: [] for act in MEASURED} for name in ledgers}
    turns = [list(ledgers.items()), list(ledgers.items())[::-1]]
    for n in range(WARM_UP + claims):
        for name, ledger in turns[n % 2]:
            ledger.submit_many(
                [{"operation": "noop", "payload": {"who": f"{n}-{m}"}, "priority": 9} for m in range(A_CLAIM)]
            )
            claim_ms, found = _timed(ledger.store, _claimed)
            assert len(found) == A_CLAIM, len(found)
            end_ms, _ = _timed(ledger.store, partial(_ended, found))
            taken[name]["claim"].append(claim_ms)
            taken[name]["end"].append(end_ms)
    return {name: {act: times[WARM_UP:] for act, times in acts.items()} for name, acts in taken.items()}


def _claimed(transaction: Transaction) -> list[Attempt]:
    return transaction.executions.claim(Lease(owner="w", seconds=60, n=A_CLAIM))


def _ended(found: Sequence[Attempt], transaction: Transaction) -> None:
    transaction.executions.move([(attempt, Complete(attempt.token, "null")) for attempt in found], actor="w")


def _timed(store: Store[Any], act: Callable[[Transaction], T]) -> tuple[float, T]:
    began = time.perf_counter()
    with store.transaction() as transaction:
        result = act(transaction)
    return (time.perf_counter() - began) * 1000, result


def figures(
    database: str, parked: Mapping[str, int], taken: Mapping[str, Mapping[str, Sequence[float]]]
) -> Iterator[Figure]:
    """Yield the figure of each act in each ledger."""
    for act in MEASURED:
        marks = {
            name: (statistics.median(t := acts[act]), statistics.quantiles(t, n=100)[-1])
            for name, acts in taken.items()
        }
        for name, (median, p99) in marks.items():
            ratio = p99 / marks[EMPTY][1]
            yield Figure(
                database=database, ledger=name, parked=parked[name], act=act, median_ms=median, p99_ms=p99,
                median_ratio=median / marks[EMPTY][0], p99_ratio=ratio, met=ratio <= RATIO,
            )  # fmt: skip


def run(databases: Sequence[str], *, quick: bool, path: Path) -> None:
    """Measure these databases, print a table for each, and write the figures to `path`."""
    console = Console(width=118)
    parked, keys, claims = (PARKED_QUICK, KEYS_QUICK, CLAIMS_QUICK) if quick else (PARKED, KEYS, CLAIMS)
    filled = {EMPTY: (0, 0), ONE: (parked, 1), MANY: (parked, keys)}
    found: list[Figure] = []
    for database in databases:
        with places(database, list(filled)) as urls, ExitStack() as stack:
            ledgers = {name: stack.enter_context(Ledger(url)) for name, url in urls.items()}
            for name, ledger in ledgers.items():
                fill(ledger, *filled[name])
                settle(ledger)
            own = list(figures(database, {name: n for name, (n, _) in filled.items()}, measure(ledgers, claims)))
        console.print(_table(database, own))
        found += own
    result = {
        "suite": "parked",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "keys": keys,
        "claims": claims,
        "figures": found,
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    console.print(f"Figures: {path}")


def _table(database: str, found: Sequence[Figure]) -> Table:
    title = f"{NAMES[database]}: milliseconds to claim and to end {A_CLAIM} jobs, by what is parked in the ledger"
    table = Table(title=title, box=SIMPLE, title_justify="left")
    for name in ("act", "ledger", "parked", "median", "p99", "median ratio", "p99 ratio", f"p99 at most {RATIO:g}"):
        table.add_column(name, justify="left" if name in ("act", "ledger") else "right")
    for one in found:
        table.add_row(
            one.act, one.ledger, f"{one.parked:,}", f"{one.median_ms:.2f}", f"{one.p99_ms:.2f}",
            f"{one.median_ratio:.2f}", f"{one.p99_ratio:.2f}", "met" if one.met else "MISSED",
        )  # fmt: skip
    return table
