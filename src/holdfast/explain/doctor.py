"""What can be wrong around a ledger: clock, disk, write-ahead log, versions, vacuum, pooler, settings, variables.

Invariants: nothing is written; each finding has a code and a next step that can be pasted; facts are given also where
nothing is wrong. What needs another role, or a table that does not exist, is left out.
"""

from __future__ import annotations

import platform
import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.explain.status import DISK_WARNING_BYTES, health_of, schema_version
from holdfast.store.configuration import misspelt
from holdfast.store.store import Store

SYNCHRONOUS = ("off", "normal", "full", "extra")  # by the number of the PRAGMA
CLOCK_S = 1.0
WAL_BYTES = 256 * 2**20
FREE_SHARE = 0.25  # of the pages of a SQLite file
DEAD_SHARE, DEAD_ROWS = 0.2, 10_000  # of the rows of a table of PostgreSQL

_DEAD = """
SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables
 WHERE relname LIKE 'holdfast\\_%' AND schemaname = current_schema() ORDER BY relname
"""


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong, and the command that helps."""

    code: str
    message: str
    next: str


class Diagnosis(msgspec.Struct, frozen=True):
    """What was looked at, and what is wrong."""

    facts: dict[str, Any]
    findings: list[Finding]


def diagnose(store: Store[Any]) -> Diagnosis:
    """Look at a ledger, its disk, its clock and its server."""
    facts: dict[str, Any] = {
        "holdfast": version("holdfast"),
        "python": platform.python_version(),
        "database": store.dialect,
        "schema_version": schema_version(store),
    }
    looks = _sqlite if store.dialect == "sqlite" else _postgres
    findings = [*_misspelt(), *_unhealthy(store), *looks(store, facts)]
    return Diagnosis(facts, findings)


def _misspelt() -> Iterator[Finding]:
    for name, near in misspelt().items():
        yield Finding("variable_misspelt", f"{name} is not a setting; the nearest is {near}.", f"unset {name}")


def _unhealthy(store: Store[Any]) -> Iterator[Finding]:
    for check in health_of(store):
        if check.status != "ok" and check.name != "disk":
            yield Finding(f"{check.name}_warning", check.detail, check.next or "holdfast health")


# ---------------------------------------------------------------------------------------------------------------------
# SQLite


def _sqlite(store: Any, facts: dict[str, Any]) -> Iterator[Finding]:
    path = store.path
    log = path.with_name(path.name + "-wal")
    with store.reading() as reading:
        [[pages]] = reading.execute("PRAGMA page_count")
        [[free]] = reading.execute("PRAGMA freelist_count")
        [[size]] = reading.execute("PRAGMA page_size")
        [[durable]] = reading.execute("PRAGMA synchronous")
        [[journal]] = reading.execute("PRAGMA journal_mode")
    disk = shutil.disk_usage(path.parent).free
    facts |= {
        "sqlite": sqlite3.sqlite_version,
        "file_bytes": pages * size,
        "free_pages_bytes": free * size,
        "wal_bytes": log.stat().st_size if log.exists() else 0,
        "disk_free_bytes": disk,
        "synchronous": SYNCHRONOUS[durable],
        "journal_mode": journal,
    }
    shell = f"sqlite3 {shlex.quote(str(path))}"
    if disk < DISK_WARNING_BYTES:
        yield Finding("disk_space_low", f"The disk of the ledger has {disk} bytes left.", "holdfast gc --dry-run")
    if facts["wal_bytes"] > WAL_BYTES:
        message = f"The write-ahead log has {facts['wal_bytes']} bytes: a long read keeps it from being folded in."
        yield Finding("wal_large", message, f"{shell} 'PRAGMA wal_checkpoint(TRUNCATE)'")
    if free > FREE_SHARE * pages and free * size > WAL_BYTES:
        message = f"{free * size} of {pages * size} bytes of the file are free pages."
        yield Finding("file_bloated", message, f"{shell} VACUUM")


# ---------------------------------------------------------------------------------------------------------------------
# PostgreSQL


def _postgres(store: Any, facts: dict[str, Any]) -> Iterator[Finding]:
    with store.reading() as reading:
        before = datetime.now(UTC)
        [[server_time]] = reading.execute("SELECT clock_timestamp()")
        host_time = before + (datetime.now(UTC) - before) / 2
        names = ("server_version", "synchronous_commit", "fsync", "full_page_writes")
        settings = {name: reading.execute(f"SHOW {name}")[0][0] for name in names}
    skew = (server_time - host_time).total_seconds()
    facts |= {**settings, "clock_skew_s": round(skew, 3), "pooler": bool(store.pooled)}
    if abs(skew) > CLOCK_S:
        message = f"The clock of this machine differs by {skew:.1f} s from that of the database, which decides leases."
        yield Finding("clock_skew", message, "timedatectl status")
    if store.pooled:
        yield Finding(
            "pooler", "A transaction pooler is in between: workers poll for work once a second.", "holdfast config show"
        )
    for name in ("fsync", "full_page_writes"):
        if settings[name] != "on":
            yield Finding(
                f"{name}_off",
                f"{name} is off: acknowledged work can be lost.",
                f"psql -c 'ALTER SYSTEM SET {name} = on'",
            )
    yield from _dead_rows(store, facts)


def _dead_rows(store: Any, facts: dict[str, Any]) -> Iterator[Finding]:
    try:
        with store.reading() as reading:
            rows = reading.execute(_DEAD)
    except HoldfastError:
        return  # a role that may not see the statistics
    facts["dead_rows"] = sum(dead for _, _, dead in rows)
    for table, live, dead in rows:
        if dead > DEAD_ROWS and dead > DEAD_SHARE * (live + dead):
            yield Finding(
                "table_bloated", f"{table} has {dead} dead rows beside {live}.", f"psql -c 'VACUUM (ANALYZE) {table}'"
            )
