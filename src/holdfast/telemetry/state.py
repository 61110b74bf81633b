"""The state of a ledger as values of gauges, from a few cheap reads.

Invariants: all values are of one snapshot; nothing is written; the time that it takes does not grow with the number
of jobs, only with the numbers of queues, priorities, operations, workers and running jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.audit.seals.horizons import floor_of
from holdfast.core.machines import JobState
from holdfast.store.store import Store
from holdfast.store.transaction import Reading
from holdfast.store.verbs.alive import alive_workers
from holdfast.store.verbs.known_queues import known_queues
from holdfast.store.verbs.seals import BEFORE_ALL, SEQ_MAX

_AT = 15  # the place of the time in a journal row as it is hashed


class Value(NamedTuple):
    """A value of a gauge: the name of the metric without its prefix, the number, and the labels."""

    name: str
    value: float
    labels: Mapping[str, str]


def state_of(store: Store[Any]) -> list[Value]:
    """Return the values of all gauges of a ledger, in the order of their table."""
    with store.reading() as reading:
        return list(_values(reading, store.now()))


def _values(reading: Reading, now: datetime) -> Iterator[Value]:
    counts, queues, workers = reading.counts.current(), known_queues(reading), alive_workers(reading, now)
    for count in counts:
        labels = {"operation": count.operation, "queue": count.queue, "state": count.state.value}
        yield Value("jobs", count.n, labels)
    due, paused = reading.lists.oldest_due(queues), set(reading.queues.paused())
    for queue in queues:
        pending = sum(count.n for count in counts if count.queue == queue and count.state is JobState.PENDING)
        age = max(0.0, (now - due[queue]).total_seconds()) if queue in due else 0.0
        yield Value("queue.depth", pending, {"queue": queue})
        yield Value("queue.age", age, {"queue": queue})
        yield Value("queue.paused", int(queue in paused), {"queue": queue})
        yield Value("queue.workers", sum(queue in worker.queues for worker in workers), {"queue": queue})
    yield Value("workers", len(workers), {})
    yield Value("worker.slots", sum(worker.concurrency for worker in workers), {})
    held, expired = reading.lists.leases(now)
    yield Value("leases", held - expired, {"status": "valid"})
    yield Value("leases", expired, {"status": "expired"})
    yield from _seals(reading, now)


def _seals(reading: Reading, now: datetime) -> Iterator[Value]:
    seals, last = reading.seals, reading.seals.last()
    floor = floor_of(seals, reading.settings.read(), last)
    first = seals.first_unsealed(last.end if last else BEFORE_ALL, floor=floor, upto=SEQ_MAX)
    lag, unsealed = 0.0, 0
    if first is not None:
        [row] = seals.journal_chunk(after=first - 1, limit=1)
        lag = max(0.0, (now - datetime.fromisoformat(row[_AT])).total_seconds())
        unsealed = max(1, seals.sealing_bounds().seq - (last.high_seq if last else 0))
    yield Value("seal.lag", lag, {})
    yield Value("seal.unsealed", unsealed, {})
