"""The state of a ledger in one report, and whether it is healthy: for `holdfast status`, `health` and `top`.

Invariants: nothing is written; the time that it takes does not grow with the number of jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.core.machines import JOB, JobState
from holdfast.store.migrations import migrations
from holdfast.store.store import Store
from holdfast.store.verbs.alive import alive_workers, is_silent
from holdfast.telemetry.state import Value, state_of

DISK_WARNING_BYTES = 5 * 10**9
AGE_WARNING_S, SEAL_WARNING_S = 300.0, 600.0
ROWS = 5000  # of the journal, from its end: what the throughput is taken from
WINDOW_S = 60.0
_MACHINE, _TARGET, _AT = 3, 7, 15  # places in a journal row as it is hashed


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at: whether it is ok, what was found, and the next command."""

    name: str
    status: str  # ok or warning
    detail: str
    next: str | None = None


class _Gauges(NamedTuple):
    """The values of a ledger's gauges, to look up."""

    values: list[Value]

    def one(self, name: str, **labels: str) -> float:
        return sum(each.value for each in self.values if each.name == name and labels.items() <= each.labels.items())

    def queues(self) -> list[str]:
        return [each.labels["queue"] for each in self.values if each.name == "queue.depth"]


def status_of(store: Store[Any]) -> dict[str, Any]:
    """Return the report of a ledger: queue, workers, system, throughput, sources."""
    gauges = _Gauges(state_of(store))
    with store.reading() as reading:
        settings = reading.settings.read()
        schedules = len(reading.configuration.active("schedule"))
        now = store.now()
        throughput = _throughput(reading, now)
        silent = sum(is_silent(worker, now) for worker in alive_workers(reading, now))
    queues: list[dict[str, Any]] = [
        {
            "queue": queue,
            "pending": int(gauges.one("queue.depth", queue=queue)),
            "oldest_due_s": round(gauges.one("queue.age", queue=queue), 3),
            "paused": bool(gauges.one("queue.paused", queue=queue)),
            "workers": int(gauges.one("queue.workers", queue=queue)),
        }
        for queue in gauges.queues()
    ]
    return {
        "queue": {
            **{state: int(gauges.one("jobs", state=state)) for state in JOB.states},
            "oldest_due_s": max((row["oldest_due_s"] for row in queues), default=0.0),
            "queues": queues,
        },
        "workers": {
            "running": int(gauges.one("workers")),
            "silent": silent,  # of the running ones: they hang, or were killed
            "slots": int(gauges.one("worker.slots")),
            "leases": int(gauges.one("leases", status="valid")),
            "expired_leases": int(gauges.one("leases", status="expired")),
        },
        "system": {
            "database": store.dialect,
            "environment": settings["environment"],
            "governed": settings["governed"] == "yes",
            "schema_version": schema_version(store),
            "seal_lag_s": round(gauges.one("seal.lag"), 3),
        },
        "throughput": throughput,
        "sources": {"schedules": schedules},
    }


def _throughput(reading: Any, now: datetime) -> dict[str, Any]:
    """Return how many jobs ended a minute, by the last rows of the journal."""
    last = reading.seals.sealing_bounds().seq
    rows = reading.seals.journal_chunk(after=max(0, last - ROWS), limit=ROWS)
    ends = [(datetime.fromisoformat(row[_AT]), row[_TARGET]) for row in rows if row[_MACHINE] == JOB.name]
    recent = [(at, target) for at, target in ends if (now - at).total_seconds() <= WINDOW_S]
    # A busy ledger writes more rows in a minute than are looked at: then the window is what they cover.
    whole = len(rows) < ROWS or len(recent) < len(ends)
    window = WINDOW_S if whole or not recent else max(0.001, (now - recent[0][0]).total_seconds())
    return {
        "window_s": round(window, 3),
        **{
            f"{state}_per_minute": round(sum(target == state for _, target in recent) * 60 / window, 1)
            for state in (JobState.SUCCEEDED.value, JobState.FAILED.value, JobState.QUARANTINED.value)
        },
    }


def schema_version(store: Store[Any]) -> int:
    """Return the version of the schema, which an open ledger has."""
    return migrations(store.dialect)[-1].number


def health_of(store: Store[Any]) -> list[Check]:
    """Return what was looked at; a ledger whose checks are all `ok` is healthy."""
    return list(_checks(store))


def _checks(store: Store[Any]) -> Iterator[Check]:
    gauges = _Gauges(state_of(store))
    yield Check("state_store", "ok", f"{store.dialect}, schema version {schema_version(store)}")
    yield _disk(store)
    expired = int(gauges.one("leases", status="expired"))
    yield _check("leases", expired == 0, f"{expired} expired leases", "holdfast stalled")
    waiting = [
        queue
        for queue in gauges.queues()
        if gauges.one("queue.age", queue=queue) > 0
        and not gauges.one("queue.workers", queue=queue)
        and not gauges.one("queue.paused", queue=queue)
    ]
    yield _workers(store, waiting)
    late = [
        queue
        for queue in gauges.queues()
        if gauges.one("queue.age", queue=queue) > AGE_WARNING_S and not gauges.one("queue.paused", queue=queue)
    ]
    detail = f"jobs are due for more than {AGE_WARNING_S:.0f} s in {', '.join(late)}" if late else "no job waits long"
    yield _check("queues", not late, detail, "holdfast queues")
    lag = gauges.one("seal.lag")
    yield _check("seals", lag <= SEAL_WARNING_S, f"oldest row without a seal: {lag:.0f} s", "holdfast audit head")


def _workers(store: Store[Any], waiting: Sequence[str]) -> Check:
    """Look at the workers; `waiting` are the queues with due jobs that no worker serves."""
    now = store.now()
    with store.reading() as reading:
        alive, every = alive_workers(reading, now), reading.lists.workers()
    silent = [worker for worker in alive if is_silent(worker, now)]
    detail = f"{len(alive)} running"
    if silent:
        since = max(worker.seen_at for worker in silent)
        detail += f", {len(silent)} of them silent for {(now - since).total_seconds():.0f} s or longer"
    if waiting:
        detail += f"; none serves {', '.join(waiting)}"
    start = "holdfast workers --all" if every else "holdfast worker --help"
    return _check("workers", not waiting, detail, start)


def _disk(store: Store[Any]) -> Check:
    path = getattr(store, "path", None)
    if path is None:
        return Check("disk", "ok", "on the server of the database; not visible from here")
    import shutil  # noqa: PLC0415 - for this check only

    free = shutil.disk_usage(path.parent).free
    return _check("disk", free >= DISK_WARNING_BYTES, f"{free / 10**9:.1f} GB free", "holdfast gc --dry-run")


def _check(name: str, healthy: bool, detail: str, then: str) -> Check:  # noqa: FBT001 - the fact that is reported
    return Check(name, "ok", detail) if healthy else Check(name, "warning", detail, then)
