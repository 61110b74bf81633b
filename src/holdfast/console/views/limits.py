"""The limits of a ledger: how much of each is in use, which keys are at their limit, and how many jobs wait.

Invariants: without limits one setting is read and nothing else; the jobs that wait for a bucket are counted up to a
number, and of each limit the buckets that are listed are bounded.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from holdfast.console.views.links import job_list, path
from holdfast.core.limit_texts import limit_text
from holdfast.core.limits import RATE, Limit, rule_of
from holdfast.core.machines import JobState
from holdfast.store.transaction import Reading
from holdfast.store.verbs.watch import WAITING_MAX, waiting_by_bucket

FULL_SHOWN = 5


class FullBucket(msgspec.Struct, frozen=True):
    """A key, queue or operation that is at its limit, and how many jobs wait for it, counted up to WAITING_MAX."""

    name: str
    waiting: int


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, and how much of it is in use."""

    subject: str
    allows: str
    held: int
    waiting: int
    waiting_more: bool  # more wait than are counted
    full: tuple[FullBucket, ...]  # the longest first
    full_total: int
    href: str


def limit_rows(reading: Reading) -> list[LimitRow]:
    """Return the limits of a ledger, those with the most waiting jobs first."""
    rules = reading.limits.rules()
    if not rules:
        return []
    held: Counter[int] = Counter(id(rule_of(bucket, rules)) for bucket, _, _ in reading.limits.held())
    waiting = waiting_by_bucket(reading)
    rows = [_row(subject, rule, rules, held[id(rule)], waiting) for subject, rule in rules.items()]
    return sorted(rows, key=lambda row: (-row.waiting, row.subject))


def _row(subject: str, rule: Limit, rules: dict[str, Limit], held: int, waiting: dict[str, int]) -> LimitRow:
    full = [
        FullBucket(bucket.removeprefix(RATE).removeprefix(subject).lstrip("=#") or subject, jobs)
        for bucket, jobs in waiting.items()
        if rule_of(bucket, rules) is rule
    ]
    full.sort(key=lambda bucket: -bucket.waiting)
    return LimitRow(
        subject=subject,
        allows=limit_text(rule),
        held=held,
        waiting=sum(bucket.waiting for bucket in full),
        waiting_more=any(bucket.waiting >= WAITING_MAX for bucket in full),
        full=tuple(full[:FULL_SHOWN]),
        full_total=len(full),
        href=_href(subject),
    )


def _href(subject: str) -> str:
    kind, _, name = subject.partition(":")
    if kind in ("queue", "depth"):
        return path("/queues", name)
    return job_list(operation=name, state=JobState.PENDING)
