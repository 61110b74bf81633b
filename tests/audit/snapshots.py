"""Ledgers to be snapshotted, and a reader of ledgers that is not Holdfast's.

Invariants: `rows_of` uses no SQL of Holdfast's own, and is equal for two ledgers only if every column of every row of
every table that should travel is the same; times and flags are brought to one form, nothing else is.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.audit.files.restore import Restored, RestoreRequest, restore
from holdfast.audit.files.snapshot import create
from holdfast.core.commands import Complete
from holdfast.core.machines import JOB, PROCEDURE, STEP, SWITCH, VALUE, JobState
from holdfast.core.records import time_text
from holdfast.governance.approval import register_approver, revoke_approver
from holdfast.store import Declared, Lease, Store, Submission, create_store, open_store
from holdfast.store.verbs.schedules import Tick
from holdfast.testing import VirtualClock
from tests.audit.rich import LONG_S, WORKER, Maker, Rich, make_rich
from tests.enforcement.raw import Client, Hand

NewUrl = Callable[[str], str]  # the fixture `new_url`
KINDS = ("sqlite", "postgres")
TRAVELLING = (
    "meta", "operations", "queues", "grants", "approvers", "procedures", "steps", "collections", "values", "evidence",
    "switches", "settings", "ticks", "calls", "jobs", "unique", "waits", "after", "aborted", "slots",
    "checkpoints", "erased", "seals", "archives", "journal",
)  # fmt: skip
BIG = '{"big":1606938044258990275541962092341162602522202993782792835301377,"ключ":"значение 🪸","small":1e-300}'
THIRD = 1 / 3


def make_full(store: Store[Any], clock: VirtualClock) -> Rich:
    """Give a new ledger everything that a ledger can hold."""
    rich = make_rich(store, clock)
    make = Maker(store, clock)
    odd = make.submit("clé €", client="отдел «веб»", payload=BIG, queue="mañana", priority=-(2**31 - 1))
    make.submit('quote " and \\ and \n line', client="c", payload='["\\u0000"]', max_attempts=2**31 - 1)
    nothing = make.submit("nothing")
    make.complete(nothing, "null")
    attempt = make.claim(odd)
    with store.transaction() as transaction:
        held = attempt.execution
        assert transaction.notes.save_progress([(held, THIRD, "un tiers ✓")]) == {held.exec_id}
        assert transaction.notes.save_checkpoints(attempt, {"страница": '{"n":0.1}'})
        assert transaction.notes.request_cancel(odd, actor="operator-1", reason="no longer wanted")
        transaction.queues.pause("mañana", actor="operator-1", reason="la cola está llena")
        transaction.queues.pause("other", actor="operator-1", reason="a while")
        transaction.queues.resume("other", actor="operator-1", reason="over")
        transaction.operations.declare({"écho": Declared(version="2.0.0", max_attempts=9)})
        transaction.settings.set("motd: día", "buenos días")
        for value in ('{"every":60}', '{"every":90}'):
            assert transaction.configuration.set("note", "día", value, actor="operator-1", reason="más a menudo")
        tick = Tick(schedule="día", tick_at=clock(), outcome="fired", job_id=odd, at=clock())
        assert transaction.schedules.record(tick)
        assert transaction.workers.take_duty("fold", 60)
        transaction.workers.seen("worker-1", ["default"], ["echo"], 8)
        assert transaction.leases.acquire("registry", "operator-1", 60)  # which is not in a snapshot
        for subject in ("job 1", "job 2"):
            assert transaction.runs.add_evidence("review", subject, '{"ok":"да"}', actor="operator-1")
    for name in ("zoë", "bob"):
        register_approver(store, name, f"{ord(name[0]):02x}" * 32, actor="operator-1", reason="a key")
    revoke_approver(store, "bob", actor="operator-1", reason="he left")
    _write_by_hand(store.url)
    return rich


def _write_by_hand(url: str) -> None:
    """Write what no verb writes alone: runs, steps, values and switches in each of their states, an erasure."""
    client = Client(url)
    try:
        hand = Hand(client)
        for machine in (PROCEDURE, STEP, VALUE, SWITCH):
            for state in sorted(machine.states):
                hand.put(machine, state)
        hand.erased(hand.put(JOB, JobState.SUCCEEDED))
        client.commit()
    finally:
        client.close()


def settle(store: Store[Any], clock: VirtualClock) -> None:
    """Let every lease run out and end what was held, so that the ledger is at rest."""
    clock.advance(2 * LONG_S)
    with store.transaction() as transaction:
        while transaction.recovery.recover(actor="reaper-1"):
            pass


def full_at_rest(url: str, clock: VirtualClock) -> None:
    """Make a full ledger without open leases."""
    with create_store(url, clock) as store:
        make_full(store, clock)
        settle(store, clock)


def many(url: str, jobs: int, *, worked: int) -> None:
    """Make a ledger with so many jobs, some of them done."""
    with create_store(url) as store:
        for first in range(0, jobs, 1000):
            batch = [
                Submission(operation="noop", payload=f'{{"n":{n},"text":"{"x" * 100}"}}', client="c", key=f"k{n}")
                for n in range(first, min(first + 1000, jobs))
            ]
            with store.transaction() as transaction:
                transaction.jobs.submit(batch)
        work(store, worked)


def work(store: Store[Any], jobs: int) -> None:
    """Claim and complete so many jobs."""
    for first in range(0, jobs, 1000):
        with store.transaction() as transaction:
            attempts = transaction.executions.claim(Lease(owner=WORKER, seconds=600, n=min(1000, jobs - first)))
            transaction.executions.move(
                [(a, Complete(a.execution.lease_token, '{"ok":true}')) for a in attempts], actor=WORKER
            )


def taken(url: str, path: Path, clock: VirtualClock | None = None) -> Path:
    """Take a snapshot of a ledger."""
    with open_store(url, clock) as store:
        create(store, path)
    return path


def put(path: Path, url: str, clock: VirtualClock | None = None, **fields: Any) -> Restored:
    """Restore a snapshot."""
    given = {"who": "operator-1", "why": "moved", **fields}
    return restore(path, url, RestoreRequest(**given), clock=clock)


# ---------------------------------------------------------------------------------------------------------------------
# Looking


def rows_of(url: str, *, upto_epoch: int = 1) -> dict[str, list[dict[str, Any]]]:
    """Return every row that should travel, as a foreign client reads it."""
    client = Client(url)
    try:
        return {table: _rows(client, table, upto_epoch) for table in TRAVELLING}
    finally:
        client.close()


def _rows(client: Client, table: str, upto_epoch: int) -> list[dict[str, Any]]:
    cursor = client.connection.execute(f"SELECT * FROM holdfast_{table}")
    names = [column[0] for column in cursor.description]
    rows = [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in cursor.fetchall()]
    if table == "meta":
        rows = [row for row in rows if row["name"] != "epoch" and not row["name"].startswith("duty:")]
    if table in ("journal", "seals"):
        rows = [row for row in rows if row["epoch"] <= upto_epoch]
    return sorted(rows, key=repr)


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return time_text(value)
    return int(value) if isinstance(value, bool) else value


def counts(store: Store[Any]) -> dict[tuple[str, str, str], int]:
    with store.reading() as reading:
        return {(count.operation, count.queue, str(count.state)): count.n for count in reading.counts.current()}


# ---------------------------------------------------------------------------------------------------------------------
# Forging


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of a snapshot, each with its end."""
    with gzip.open(path) as file:
        return file.readlines()


def pack(path: Path, lines: Sequence[bytes]) -> Path:
    """Write lines as they are."""
    with gzip.GzipFile(filename=path, mode="wb", mtime=0) as file:
        file.writelines(lines)
    return path


def forge(path: Path, source: Path, change: Callable[[list[list[Any]]], None], **header: Any) -> Path:
    """Write a snapshot whose rows, or header, were changed and whose last line agrees with that."""
    first, *rows = [json.loads(line) for line in lines_of(source)[:-1]]
    first |= header
    change(rows)
    lines = [json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for value in [first, *rows]]
    counted = {table: sum(row[0] == table for row in rows) for table in TRAVELLING}
    trailer = {"rows": counted, "sha256": hashlib.sha256(b"".join(lines)).hexdigest()}
    return pack(path, [*lines, json.dumps(trailer).encode() + b"\n"])
