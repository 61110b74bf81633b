"""One fixed run through everything that a write-ahead log writes, which can be killed at any statement of it.

Invariants: one thread that counts, and a clock that only the run moves, so every run issues the same statements in
the same order; what has been answered is noted before the next step, by one write that outlives the process; an
effect is one row without any unique constraint, so that a second one would be seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast import Ledger
from holdfast.compat import Boundary, Effect, EntryStatus, StateTransitionRaceError, Wal, WalEntry
from holdfast.compat.wal_moves import Busy
from holdfast.core.records import Job
from holdfast.engine.world import World
from holdfast.store import Submission
from holdfast.testing import VirtualClock
from tests.support.roles import note
from tests.support.trap import Trap, die

LEASE_S = 10.0
MAX_ATTEMPTS = 3  # one dies with the entry in hand, one may be killed with it, and one completes it
KEYS = ("direct", "executed", "failed", "held", "left", "poison", "late")
COMPLETED = ("direct", "executed", "held", "left", "late")
FAILED = ("failed", "poison")
EFFECTS = "CREATE TABLE wal_effects (log text NOT NULL, key text NOT NULL, entry bigint NOT NULL)"
EFFECT = "INSERT INTO wal_effects (log, key, entry) VALUES (:log, :key, :entry)"


class TwoSteps(Wal):
    """A log as it must not be: the effects first, then the completion, each in a transaction of its own."""

    def _completed(
        self, entry_id: int, result: str, effects: Sequence[Effect], followups: Sequence[Submission] = ()
    ) -> Job | Busy:
        self._perform(lambda transaction: transaction.apply([effects]))
        return super()._completed(entry_id, result, (), followups)


def log_on(ledger: Ledger, name: str, kind: type[Wal] = Wal) -> Wal:
    return kind(ledger, name=name, lease_s=LEASE_S, max_attempts=MAX_ATTEMPTS)


def append(wal: Wal, key: str) -> tuple[int, bool]:
    """Append an entry under a key, as its client does the first time and every time after."""
    return wal.append_with_idempotency(f"client-{wal.name}", key, "Create", f"data of {key}".encode())


def effect_of(wal: Wal, entry: WalEntry) -> Effect:
    return Effect(EFFECT, {"log": wal.name, "key": str(entry.idempotency_key), "entry": entry.id}, 1)


def carry_out(wal: Wal) -> Callable[[WalEntry, Boundary], str]:
    """Return what carries entries out: one row each, but for those that never work."""

    def apply(entry: WalEntry, boundary: Boundary) -> str:
        effect = effect_of(wal, entry)
        boundary.effect(effect.sql, effect.params, rows=1)
        if entry.idempotency_key in FAILED:
            raise ValueError("it never works")
        return str(entry.idempotency_key)

    return apply


def retry(wal: Wal, key: str) -> None:
    """Be a client that got no answer: ask again under the key, and carry out what is still pending."""
    entry_id, _ = append(wal, key)
    if wal.get(entry_id).status is EntryStatus.PENDING:
        wal.execute(entry_id, carry_out(wal))


def run(
    url: str,
    *,
    name: str,
    notes: str,
    counted: str,
    by: str = "statement",
    kill_at: int | None = None,
    kind: type[Wal] = Wal,
) -> None:
    """Make the whole run, or be killed at the statement numbered `kill_at`."""
    trap = Trap(kill_at)
    trap.watch_sqlite(by)
    trap.watch_postgres()
    clock = VirtualClock()
    with Ledger(url, world=World(clock=clock)) as ledger:
        wal = log_on(ledger, name, kind)
        wal.pending_count()  # opens it
        trap.armed = True
        ids = {}
        for key in KEYS[:-1]:
            ids[key], _ = append(wal, key)
            note(notes, f"appended {key}")
        assert append(wal, "executed") == (ids["executed"], False)
        wal.complete(ids["direct"], "direct", effects=[effect_of(wal, wal.get(ids["direct"]))])
        note(notes, "completed direct")
        wal.execute(ids["executed"], carry_out(wal))
        note(notes, "completed executed")
        wal.fail(ids["failed"], "not wanted")
        note(notes, "failed failed")
        wal._begun(ids["held"])  # as a recovery does that dies next
        clock.advance(LEASE_S + 1)
        report = log_on(ledger, name, kind).recover(carry_out(wal))
        assert report.completed == (ids["held"], ids["left"])
        assert report.failed == (ids["poison"],)
        note(notes, "completed held left")
        note(notes, "failed poison")
        clock.advance(2 * 86_400)
        ids["late"], _ = append(wal, "late")
        note(notes, "appended late")
        assert wal.cleanup() == len(KEYS) - 1
        note(notes, "cleaned up")
        for key in KEYS:
            retry(wal, key)
        note(notes, "completed late")
        note(counted, str(trap.count))


def run_in_two_steps(**given: Any) -> None:
    """Make the run with the log that must not be, so that the check has something to find."""
    run(**given, kind=TwoSteps)


def append_all(url: str, *, name: str, keys: int, notes: str, go: str) -> None:
    """Append every key, all at once with another process, and note each answer."""
    with Ledger(url) as ledger:
        wal = Wal(ledger, name=name)
        wal.pending_count()
        note(notes, "ready")
        while not Path(go).exists():
            time.sleep(0.001)
        for key in range(keys):
            entry_id, is_new = wal.append_with_idempotency("both", key, "Create", f"{key}".encode())
            note(notes, f"{key} {entry_id} {int(is_new)} {time.monotonic_ns()}")


def carry_out_all(url: str, *, names: list[str], keys: int, threads: int) -> None:
    """Be clients of several logs at once: append every key, and carry it out in one of two ways, in many threads."""
    with Ledger(url) as ledger:
        wals = [Wal(ledger, name=name) for name in names]

        def client(number: int) -> None:
            for step in range(number, keys * len(wals), threads):
                wal, key = wals[step % len(wals)], str(step // len(wals))
                entry_id, _ = append(wal, key)
                while True:
                    try:
                        if number % 2:
                            wal.complete(entry_id, key, effects=[effect_of(wal, wal.get(entry_id))])
                        else:
                            wal.execute(entry_id, carry_out(wal))
                        break
                    except StateTransitionRaceError:  # the other process is at it
                        time.sleep(0.001)

        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(client, number) for number in range(threads)]:
                done.result()


def recover_to_death(
    url: str, *, name: str, max_attempts: int = 5, late_s: float = 0.0, lease_s: float = LEASE_S
) -> None:
    """Recover a log with an entry that kills each process that carries it out, by a clock that is `late_s` ahead."""

    def deadly(entry: WalEntry, boundary: Boundary) -> None:
        if entry.data == b"deadly":
            die()
        boundary.effect(EFFECT, {"log": name, "key": str(entry.idempotency_key), "entry": entry.id}, rows=1)

    with Ledger(url, world=World(clock=lambda: datetime.now(UTC) + timedelta(seconds=late_s))) as ledger:
        Wal(ledger, name=name, lease_s=lease_s, max_attempts=max_attempts).recover(deadly)
