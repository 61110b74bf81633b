"""One gc over a ledger that was made before, which can be killed at any statement and at any file operation of it.

Invariants: a clock that stands still and one thread, so every run takes the same steps in the same order; each step of
the database counts once, each file operation twice: before it and after it.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg

from holdfast import Ledger
from holdfast.audit.seals.sealer import seal
from holdfast.engine.upkeep import archiving, retention
from holdfast.engine.upkeep.retention import GcReport, Retention, gc
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing import VirtualClock
from tests.crash.reference_run import reference_ledger
from tests.support.roles import CLIENT, create_effects, note

KEYS = ("a", "b", "c")
REST_S = 1000.0
FILE_OPERATIONS = ("open", "write", "fsync", "replace", "unlink", "close", "scandir")


def aged_ledger(url: str) -> Ledger:
    """Return the ledger of a run, long after its jobs have ended."""
    clock = VirtualClock()
    clock.advance(REST_S)
    return reference_ledger(url, clock)


def make(url: str) -> None:
    """Make a ledger with three finished jobs and a cancelled one, sealed in blocks of five rows."""
    with reference_ledger(url, VirtualClock()) as ledger:
        create_effects(ledger)
        for key in KEYS:
            ledger.submit("step", {"key": key}, client=CLIENT, key=key)
        ledger.run_until_idle()
        ledger.cancel(ledger.submit("step", {"key": "no"}, client=CLIENT, key="no").job_id)
        seal(ledger.store, block_rows=5)


def policy(folder: Path) -> Retention:
    return Retention(finished_s=1, quarantined_s=1, history_s=1, archive_dir=str(folder))


def collect(ledger: Ledger, folder: Path) -> GcReport:
    """Run gc in small steps: two jobs a batch, two blocks a file."""
    with mock.patch.object(retention, "JOBS_A_BATCH", 2), mock.patch.object(archiving, "BLOCKS_A_FILE", 2):
        return gc(ledger.store, policy(folder), who="gc")


def run(url: str, *, folder: str, counted: str, kill_at: int | None = None) -> None:
    """Make the whole gc, or be killed at the step numbered `kill_at`."""
    trap = _Trap(kill_at)
    with aged_ledger(url) as ledger:
        ledger.store  # noqa: B018 - opens it
        trap.armed = True
        collect(ledger, Path(folder))
        trap.armed = False
    note(counted, str(trap.count))


def repeat(url: str, *, told: str, stop: str) -> None:
    """Repeat every key, again and again, and tell what was answered, until a file appears."""
    with aged_ledger(url) as ledger:
        while not Path(stop).exists():
            for key in KEYS:
                receipt = ledger.submit("step", {"key": key}, client=CLIENT, key=key)
                result = "expired" if receipt.result_expired else receipt.result
                note(told, f"{key} {receipt.job_id} {receipt.is_new} {result}")


def collect_alone(url: str, *, folder: str, told: str) -> None:
    """Run one gc, and tell what it did."""
    with aged_ledger(url) as ledger:
        report = collect(ledger, Path(folder))
    note(told, f"{report.finished} {report.quarantined} {' '.join(made.file for made in report.archives)}")


class _Trap:
    """Counts the steps of this process, and kills it at one of them."""

    def __init__(self, kill_at: int | None) -> None:
        self.count = 0
        self.armed = False
        self._last = ""
        self._kill_at = kill_at
        self._watch_sqlite()
        self._watch_postgres()
        for name in FILE_OPERATIONS:
            setattr(os, name, self._twice(getattr(os, name)))

    def step(self) -> None:
        if self.armed:
            self.count += 1
            if self.count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def _watch_sqlite(self) -> None:
        opened = SqliteStore._open

        def traced(text: str) -> None:
            # A trigger's own statements are told under the text of the statement that fired it.
            if text != self._last:
                self._last = text
                self.step()

        def _open(store: SqliteStore) -> sqlite3.Connection:
            connection = opened(store)
            connection.set_trace_callback(traced)
            return connection

        SqliteStore._open = _open  # type: ignore[method-assign, assignment]

    def _watch_postgres(self) -> None:
        psycopg.Cursor.execute = self._once(psycopg.Cursor.execute)  # type: ignore[method-assign]
        psycopg.Connection.commit = self._twice(psycopg.Connection.commit)  # type: ignore[method-assign]

    def _once(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*args: Any, **named: Any) -> Any:
            self.step()
            return act(*args, **named)

        return acting

    def _twice(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*args: Any, **named: Any) -> Any:
            self.step()
            done = act(*args, **named)
            self.step()
            return done

        return acting
