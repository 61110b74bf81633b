"""Failures that are alike: failed jobs, grouped by operation, error code and the pattern of their message.

Invariants: grouping reads the newest GROUPED failed jobs and says so when there are more; the same three values always
give the same group; a pattern holds nothing of a message that differs between two jobs of the kinds it knows.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import msgspec

from holdfast.console.views.charts import BARS, Sparkline, sparkline
from holdfast.core.errors import RecordNotFoundError
from holdfast.core.records import Job
from holdfast.store.transaction import Reading
from holdfast.store.verbs.watch import FailedFact, count_failed, failed_facts

GROUPED = 50_000  # the newest failed jobs that are grouped
FEW = 1_000  # failed jobs that are grouped within a request
SLICE = 200  # failed jobs that are read and grouped between two rests: about 4 ms of the processor
SHARED_S = 15.0  # how long groups are shared between viewers
PATTERN_MAX = 200
HOUR = timedelta(hours=1)
OPENS, CLOSES = "\u2039", "\u203a"  # around the kind of what differs

# What differs between messages of the same failure, the most specific first.
_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (mark, re.compile(pattern))
    for mark, pattern in (
        ("uuid", r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"),
        ("time", r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b"),
        ("email", r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
        ("key", r"(?<=://)([\w.-]+(?::\d+)?)/[^\s'\",;)]*"),
        ("str", r"'[^']*'|\"[^\"]*\"|“[^”]*”"),
        ("ip", r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"),
        ("hex", r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"),
        ("path", r"(?<![\w/])/(?:[\w.@-]+/)+[\w.@-]*"),
        ("n", r"(?<![\w.])[+-]?\d+(?:[.,]\d+)*(?=[a-zA-Z%]{0,3}\b|%|\W|$)"),
    )
)
RULE = "operation, error code, and the message with each of these replaced: " + ", ".join(
    f"{OPENS}{mark}{CLOSES}" for mark, _ in _RULES
)


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Failed jobs that are alike."""

    hash: str
    operation: str
    code: str
    pattern: str
    queues: tuple[str, ...]
    jobs: int
    last_hour: int
    trend: Sparkline
    first_at: datetime
    last_at: datetime
    samples: tuple[int, ...]  # ids of jobs: the newest, one from the middle, the oldest


class FailedGroups(msgspec.Struct, frozen=True, kw_only=True):
    """All groups, the largest first."""

    groups: tuple[Group, ...]
    total: int  # how many groups there are, if only some are shown
    jobs: int  # how many failed jobs were grouped
    cut: bool  # there are more failed jobs: only the newest were grouped
    at: datetime

    @property
    def awaited(self) -> bool:
        """Return whether there are failed jobs that have not been grouped yet."""
        return self.cut and not self.jobs


def pattern_of(message: str | None) -> str:
    """Return the pattern of an error message: its first line, with what differs between jobs replaced by its kind."""
    text = (message or "").partition("\n")[0].strip()
    for mark, pattern in _RULES:
        text = pattern.sub(rf"\1/{OPENS}key{CLOSES}" if mark == "key" else f"{OPENS}{mark}{CLOSES}", text)
    return text if len(text) <= PATTERN_MAX else text[: PATTERN_MAX - 1] + "…"


def group_hash(operation: str, code: str, pattern: str) -> str:
    """Return the name of a group in addresses."""
    return hashlib.sha256(f"{operation}\x1f{code}\x1f{pattern}".encode()).hexdigest()[:12]


def few_groups(reading: Reading, now: datetime) -> FailedGroups | None:
    """Return the groups of all failed jobs if these are few, else None."""
    return failure_groups(reading, now) if count_failed(reading, most=FEW + 1) <= FEW else None


def no_groups(now: datetime) -> FailedGroups:
    """Return what a page shows while the failed jobs are grouped for the first time."""
    return FailedGroups(groups=(), total=0, jobs=0, cut=True, at=now)


def failure_groups(reading: Reading, now: datetime, *, rest: Callable[[float], object] | None = None) -> FailedGroups:
    """Return the groups of the newest failed jobs, the largest group first.

    `rest` is called after every SLICE of them, with the seconds that it took.
    """
    found: dict[tuple[str, str, str], _Members] = {}
    patterns: dict[str | None, str] = {}
    for facts in _slices(reading, rest):
        for fact in facts:
            if fact.message not in patterns:
                patterns[fact.message] = pattern_of(fact.message)
            key = fact.operation, fact.code or "none", patterns[fact.message]
            if key not in found:
                found[key] = _Members(now)
            found[key].add(fact)
    groups = [members.group(*key) for key, members in found.items()]
    groups.sort(key=lambda group: (-group.jobs, group.operation, group.code, group.pattern))
    jobs = sum(group.jobs for group in groups)
    cut = jobs == GROUPED and count_failed(reading, most=GROUPED + 1) > GROUPED
    return FailedGroups(groups=tuple(groups), total=len(groups), jobs=jobs, cut=cut, at=now)


def _slices(reading: Reading, rest: Callable[[float], object] | None) -> Iterator[list[FailedFact]]:
    """Yield the newest GROUPED failed jobs, newest first."""
    before, left = None, GROUPED
    while left > 0:
        began = time.monotonic()
        facts = failed_facts(reading, before=before, limit=min(SLICE, left))
        yield facts
        if len(facts) < SLICE:
            return
        before, left = facts[-1].job_id, left - len(facts)
        if rest is not None:
            rest(time.monotonic() - began)


class _Members:
    """The failed jobs of one group, added newest first."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._ids: list[int] = []
        self._queues: set[str] = set()
        self._bars = [0] * BARS
        self._first_at = self._last_at = now

    def add(self, fact: FailedFact) -> None:
        if not self._ids:
            self._first_at = self._last_at = fact.at
        self._ids.append(fact.job_id)
        self._queues.add(fact.queue)
        self._first_at, self._last_at = min(self._first_at, fact.at), max(self._last_at, fact.at)
        place = BARS - 1 - int((self._now - fact.at) / HOUR * BARS)
        if 0 <= place < BARS:
            self._bars[place] += 1

    def group(self, operation: str, code: str, pattern: str) -> Group:
        recent, ids = sum(self._bars), self._ids
        samples = dict.fromkeys((ids[0], ids[len(ids) // 2], ids[-1]))
        return Group(
            hash=group_hash(operation, code, pattern),
            operation=operation,
            code=code,
            pattern=pattern,
            queues=tuple(sorted(self._queues)),
            jobs=len(ids),
            last_hour=recent,
            trend=sparkline([0] * BARS, f"{code}: {recent} failures in the last hour", self._bars),
            first_at=self._first_at,
            last_at=self._last_at,
            samples=tuple(samples),
        )


class GroupPage(msgspec.Struct, frozen=True, kw_only=True):
    """One group with samples of its jobs, and the rule by which jobs belong to it."""

    group: Group
    samples: tuple[Job, ...]
    rule: str


def group_page(reading: Reading, groups: FailedGroups, name: str) -> GroupPage:
    """Return a group by its hash; raise RecordNotFoundError if no failed job is in it now."""
    group = next((one for one in groups.groups if one.hash == name), None)
    if group is None:
        raise RecordNotFoundError(
            f"No failed job is in the group {name} now.",
            next_step="Its jobs were retried, cancelled or replayed since, or it is beyond the newest failed jobs."
            " See all groups under /failures.",
            context={"group": name},
        )
    return GroupPage(group=group, samples=tuple(reading.jobs.get_many(group.samples)), rule=RULE)
