"""What moved in the last hour, minute by minute.

Invariants: a bucket counts moves of jobs in one minute; levels are computed backwards from the present counts, so that
the last value of a level is the present count; the journal is not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from holdfast.core.decide import LEASE_EXPIRED
from holdfast.core.machines import JobState
from holdfast.engine.worker.processes import PROCESS_DIED
from holdfast.store.transaction import Reading
from holdfast.store.verbs.watch import JobMoves, recent_moves

MINUTES = 60
RATE_MINUTES = 5  # over which a rate is averaged
RETRY_MINUTES = 10  # over which retries are counted
STALL_MINUTES = 2  # a queue with due jobs of which none begins for so long is stalled


class Alike(msgspec.Struct, frozen=True):
    """Attempts of one operation that ended with one error."""

    operation: str
    code: str
    queues: tuple[str, ...]
    n: int


class Activity:
    """The moves of the last hour, by queue and by state; index 59 is the present minute."""

    def __init__(self, buckets: Iterable[JobMoves], now: datetime, since: datetime | None = None) -> None:
        self.now = now
        self.since = since  # if the moves before this time are not known
        self._into: dict[str, list[int]] = defaultdict(lambda: [0] * MINUTES)
        self._net: dict[str, list[int]] = defaultdict(lambda: [0] * MINUTES)
        self._done: dict[str, list[int]] = defaultdict(lambda: [0] * MINUTES)
        self._failed: dict[str, list[int]] = defaultdict(lambda: [0] * MINUTES)
        self._begun: dict[str, int] = defaultdict(int)
        self._retried: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._taken_out: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._process_lost: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        last = minute_of(now)
        for bucket in buckets:
            place = MINUTES - 1 - int((last - bucket.minute).total_seconds() // 60)
            if not 0 <= place < MINUTES:
                continue
            self._into[bucket.target][place] += bucket.n
            self._net[bucket.target][place] += bucket.n
            if bucket.source is not None:
                self._net[bucket.source][place] -= bucket.n
            if bucket.source == JobState.RUNNING and bucket.code in (LEASE_EXPIRED, PROCESS_DIED):
                self._process_lost[bucket.operation, bucket.code][bucket.queue] += bucket.n
            if bucket.target == JobState.RUNNING and place >= MINUTES - 1 - STALL_MINUTES:
                self._begun[bucket.queue] += bucket.n
            if bucket.target == JobState.SUCCEEDED:
                self._done[bucket.queue][place] += bucket.n
            elif bucket.source == JobState.RUNNING and bucket.target in (JobState.FAILED, JobState.QUARANTINED):
                self._failed[bucket.queue][place] += bucket.n
                if bucket.target == JobState.QUARANTINED and bucket.code is not None:
                    self._taken_out[bucket.operation, bucket.code][bucket.queue] += bucket.n
            elif bucket.code is not None and bucket.event == "retry" and place >= MINUTES - RETRY_MINUTES:
                self._retried[bucket.operation, bucket.code][bucket.queue] += bucket.n

    def into(self, state: JobState) -> list[int]:
        """Return how many jobs entered a state, minute by minute."""
        return list(self._into[state])

    def level(self, state: JobState, present: int) -> list[int]:
        """Return how many jobs were in a state at the end of each minute."""
        levels, level = [], present
        for change in reversed(self._net[state]):
            levels.append(max(0, level))
            level -= change
        return levels[::-1]

    def done(self, queue: str) -> list[int]:
        """Return how many jobs of a queue succeeded, minute by minute."""
        return list(self._done[queue])

    def failed(self, queue: str) -> list[int]:
        """Return how many jobs of a queue ended as failed or quarantined, minute by minute."""
        return list(self._failed[queue])

    def begins(self, queue: str) -> bool:
        """Return whether an attempt of a queue began in the last STALL_MINUTES, as far as the moves are known."""
        known = self.since is None or self.now - self.since > timedelta(minutes=STALL_MINUTES + 1)
        return not known or self._begun[queue] > 0

    def rate(self, queue: str) -> float:
        """Return how many jobs of a queue succeeded a minute, over the last whole minutes."""
        return sum(self._done[queue][-1 - RATE_MINUTES : -1]) / RATE_MINUTES

    def retries(self) -> list[Alike]:
        """Return the attempts of the last RETRY_MINUTES that ended in error and are retried, most frequent first."""
        return _alike(self._retried)

    def taken_out(self) -> list[Alike]:
        """Return the attempts of the last hour whose jobs went to quarantine, most frequent first."""
        return _alike(self._taken_out)

    def process_lost(self) -> list[Alike]:
        """Return the attempts of the last hour that lost their worker or their process, most frequent first."""
        return _alike(self._process_lost)


def _alike(counts: dict[tuple[str, str], dict[str, int]]) -> list[Alike]:
    found = [Alike(*key, tuple(sorted(queues)), sum(queues.values())) for key, queues in counts.items()]
    return sorted(found, key=lambda one: -one.n)


def minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def last_hour(reading: Reading, now: datetime) -> Activity:
    found = recent_moves(reading, minute_of(now) - timedelta(minutes=MINUTES - 1))
    return Activity(found.moves, now, found.since)
