"""One gc over a ledger that was made before, which can be killed at any statement and at any file operation of it.

Invariants: a clock that stands still and one thread, so every run takes the same steps in the same order; each step of
the database counts once, each file operation twice: before it and after it.
"""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

from holdfast import Ledger
from holdfast.audit.seals.sealer import seal
from holdfast.core.commands import GiveBack
from holdfast.engine.upkeep import archiving, retention
from holdfast.engine.upkeep.retention import GcReport, Retention, gc
from holdfast.store import Lease
from holdfast.testing import VirtualClock
from tests.crash.reference_run import reference_ledger
from tests.support.roles import CLIENT, create_effects, note
from tests.support.trap import Trap

KEYS = ("a", "b", "c")
REST_S = 1000.0
FILE_OPERATIONS = ("open", "write", "fsync", "replace", "unlink", "close", "scandir")


def aged_ledger(url: str) -> Ledger:
    """Return the ledger of a run, long after its jobs have ended."""
    clock = VirtualClock()
    clock.advance(REST_S)
    return reference_ledger(url, clock)


def make(url: str) -> None:
    """Make a ledger with three finished jobs, one of them at its second attempt, and a cancelled one; seal it.

    There are thirteen rows in five blocks.
    """
    with reference_ledger(url, VirtualClock()) as ledger:
        create_effects(ledger)
        for key in KEYS:
            ledger.submit("step", {"key": key}, client=CLIENT, key=key)
        with ledger.store.transaction() as transaction:
            [attempt] = transaction.executions.claim(Lease(owner="w", seconds=60))
            back = GiveBack(attempt.execution.lease_token, ledger.store.now(), "worker_stopped")
            transaction.executions.move([(attempt, back)], actor="w")
        ledger.run_until_idle()
        ledger.cancel(ledger.submit("step", {"key": "no"}, client=CLIENT, key="no").job_id)
        seal(ledger.store, block_rows=3)


def watched(kill_at: int | None) -> Trap:
    """Return a trap that counts the statements of both databases."""
    trap = Trap(kill_at)
    trap.watch_sqlite()
    trap.watch_postgres()
    return trap


def policy(folder: Path) -> Retention:
    return Retention(finished_s=1, quarantined_s=1, history_s=1, archive_dir=str(folder))


def collect(ledger: Ledger, folder: Path) -> GcReport:
    """Run gc in small steps: two jobs a batch, two blocks a file."""
    with mock.patch.object(retention, "JOBS_A_BATCH", 2), mock.patch.object(archiving, "BLOCKS_A_FILE", 2):
        return gc(ledger.store, policy(folder), who="gc")


def run(url: str, *, folder: str, counted: str, kill_at: int | None = None) -> None:
    """Make the whole gc, or be killed at the step numbered `kill_at`."""
    trap = watched(kill_at)
    trap.watch_calls(os, *FILE_OPERATIONS)
    with aged_ledger(url) as ledger:
        ledger.store  # noqa: B018 - opens it
        trap.armed = True
        collect(ledger, Path(folder))
        trap.armed = False
    note(counted, str(trap.count))


def repeat(url: str, *, notes: str, stop: str) -> None:
    """Repeat every key, again and again, and note the answers, until a file appears."""
    with aged_ledger(url) as ledger:
        while not Path(stop).exists():
            for key in KEYS:
                receipt = ledger.submit("step", {"key": key}, client=CLIENT, key=key)
                result = "expired" if receipt.result_expired else receipt.result
                note(notes, f"{key} {receipt.job_id} {receipt.is_new} {result}")


def collect_alone(url: str, *, folder: str, notes: str) -> None:
    """Run one gc, and note what it did."""
    with aged_ledger(url) as ledger:
        report = collect(ledger, Path(folder))
    note(notes, f"{report.finished} {report.quarantined} {' '.join(made.file for made in report.archives)}")
