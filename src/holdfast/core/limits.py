"""Limits: how many jobs of a queue, an operation or a key may run at once, and how many may start in a time.

A limit belongs to a subject: `queue:mail`, `operation:send`, or `key:send`, which is a limit for each value that a path
finds in the arguments of `send`. A bucket is where a limit is counted: the subject itself, or the subject and the key.
`depth:mail` is how many jobs may wait in a queue that parks what is submitted beyond that (`store.verbs.depth`).

Invariants: pure; a job is given out only if each of its buckets has room, and then it takes from each; a bucket is
never given out beyond its limit, whatever the order of the candidates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil, floor
from typing import NamedTuple

import msgspec

from holdfast.core.digest import sha256

KIND = "limit"
QUEUE, OPERATION, KEY = "queue", "operation", "key"
RATE = "rate:"  # before the name of a bucket of tokens
DEPTH = "depth:"  # before the name of a queue that parks what is submitted beyond its depth
EVERY = 1 << 30  # more jobs than a bucket has
TINY = 1e-6  # of a token: times are whole microseconds
TOGETHER_S = 0.05  # tokens that come within this time are given out together
BUCKET_CHARS_MAX = 300  # a longer key is hashed: a bucket must fit into an index entry


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit as the ledger stores it; a part that is None does not limit."""

    running: int | None = None  # jobs at once
    starts: int | None = None  # jobs in `seconds`
    seconds: float = 1.0
    burst: int | None = None  # starts that may come at once after a pause; None: `starts`
    path: str | None = None  # of a key: the place of its value in the arguments
    depth: int | None = None  # jobs that may wait

    @property
    def burst_max(self) -> float:
        """Return how many tokens its bucket holds at most."""
        return float(self.burst or self.starts or 0)

    @property
    def per_s(self) -> float:
        """Return how many tokens come in a second."""
        return (self.starts or 0) / self.seconds


class Candidate(NamedTuple):
    """A due job that a claim may give out; `key` is the JSON text that the path of its operation finds."""

    job_id: int
    queue: str
    operation: str
    key: str | None


class Tokens(NamedTuple):
    """The tokens of a rate at a time; while the time is in the future there are none."""

    tokens: float
    at: datetime

    def by(self, now: datetime, limit: Limit) -> float:
        """Return how many tokens there are now."""
        if now < self.at:
            return 0.0
        return min(limit.burst_max, self.tokens + (now - self.at).total_seconds() * limit.per_s)

    def next_at(self, now: datetime, limit: Limit) -> datetime:
        """Return when there is a whole token."""
        base = max(now, self.at)
        missing = 1.0 - self.by(base, limit)
        if missing <= TINY:
            return base
        return base + timedelta(microseconds=ceil(missing / limit.per_s * 1_000_000 - TINY))

    def wake_at(self, now: datetime, limit: Limit) -> datetime:
        """Return when to let the next jobs go: not for each token of many, and before the bucket is full."""
        return max(self.next_at(now, limit), now + timedelta(seconds=min(TOGETHER_S, limit.burst_max / limit.per_s)))


Rules = Mapping[str, Limit]
"""The limits of a ledger by their subject."""


def buckets_of(job: Candidate, rules: Rules) -> list[tuple[str, Limit]]:
    """Return the buckets of a job, each with its limit."""
    subjects = (f"{QUEUE}:{job.queue}", f"{OPERATION}:{job.operation}", f"{KEY}:{job.operation}")
    return [
        (key_bucket(subject, job.key) if limit.path is not None else subject, limit)
        for subject in subjects
        if (limit := rules.get(subject)) is not None
    ]


def key_bucket(subject: str, key: str | None) -> str:
    """Return the bucket of one key; `key` is JSON text, None where the arguments have no such place."""
    text = "null" if key is None else msgspec.json.encode(msgspec.json.decode(key)).decode()
    name = f"{subject}={text}"
    return name if len(name) <= BUCKET_CHARS_MAX else f"{subject}#{sha256(text)}"


def rule_of(bucket: str, rules: Rules) -> Limit | None:
    """Return the limit that a bucket belongs to; None if that was removed."""
    name = bucket.removeprefix(RATE)
    if name.startswith(f"{KEY}:"):
        name = re.split("[=#]", name, maxsplit=1)[0]
    return rules.get(name)


class Assignment(NamedTuple):
    """What a claim does with its candidates."""

    chosen: list[int]  # to be given out, in the order of the candidates
    taken: list[tuple[str, int, int]]  # (bucket, slot, job)
    parked: dict[int, str]  # by job, the bucket that has no room for it
    tokens: dict[str, Tokens]  # of the buckets from which tokens were taken
    passed: set[str]  # buckets with room that a parked job would have used: another job may have it


class Room:
    """What is left in the buckets while a claim looks at its candidates."""

    def __init__(self, rules: Rules, now: datetime) -> None:
        self.rules = rules
        self.now = now
        self._used: dict[str, set[int]] = {}
        self._tokens: dict[str, Tokens] = {}
        self.waiting: dict[str, int] = {}  # by the bucket of a depth

    def know(self, used: Iterable[tuple[str, int]], tokens: Iterable[tuple[str, float, datetime]]) -> None:
        """Take what the ledger stores of some buckets."""
        for bucket, slot in used:
            self._used.setdefault(bucket, set()).add(slot)
        for bucket, n, at in tokens:
            self._tokens[bucket] = Tokens(n, at)

    def left(self, bucket: str, limit: Limit) -> int:
        """Return how many more jobs a bucket has room for now."""
        if limit.depth is not None:
            return max(0, limit.depth - self.waiting.get(bucket, 0))
        if bucket.startswith(RATE):
            return EVERY if limit.starts is None else floor(self.tokens_of(bucket, limit).by(self.now, limit) + TINY)
        return EVERY if limit.running is None else max(0, limit.running - len(self._used.get(bucket, ())))

    def free_slot(self, bucket: str) -> int:
        """Return the lowest slot of a bucket that is not in use, and take it."""
        used = self._used.setdefault(bucket, set())
        slot = next(number for number in range(1, len(used) + 2) if number not in used)
        used.add(slot)
        return slot

    def tokens_of(self, bucket: str, limit: Limit) -> Tokens:
        """Return the tokens of a bucket; one that was never used is full."""
        return self._tokens.get(bucket) or Tokens(limit.burst_max, self.now)

    def assign(self, candidates: Sequence[Candidate], n: int) -> Assignment:
        """Choose up to n candidates that have room in all their buckets; park those that have not."""
        made = Assignment([], [], {}, {}, set())
        for job in candidates:
            if len(made.chosen) == n:
                break
            buckets = buckets_of(job, self.rules)
            full = next((name for name, limit in counted(buckets) if self.left(name, limit) < 1), None)
            if full is None:
                made.chosen.append(job.job_id)
                self._take(job, buckets, made)
            else:
                made.parked[job.job_id] = full
                made.passed.update(name for name, limit in counted(buckets) if self.left(name, limit) >= 1)
        return made

    def _take(self, job: Candidate, buckets: Sequence[tuple[str, Limit]], made: Assignment) -> None:
        for name, limit in counted(buckets):
            if name.startswith(RATE):
                left = max(0.0, self.tokens_of(name, limit).by(self.now, limit) - 1)
                made.tokens[name] = self._tokens[name] = Tokens(left, self.now)
            else:
                made.taken.append((name, self.free_slot(name), job.job_id))


def counted(buckets: Iterable[tuple[str, Limit]]) -> list[tuple[str, Limit]]:
    """Return the buckets of slots and those of tokens that some buckets have; a limit may have both."""
    found = list(buckets)
    slots = [(name, limit) for name, limit in found if limit.running is not None]
    return slots + [(RATE + name, limit) for name, limit in found if limit.starts is not None]
