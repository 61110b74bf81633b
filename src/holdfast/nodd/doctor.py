"""What ails a feed: a topic that is dead, a policy of the wrong scope, silence, letters that die.

Invariants: nothing is changed; each finding says what is wrong, how that is known, and what to do.
"""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.records import time_from
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.queues import Queue
from holdfast.nodd.statements import run_statement
from holdfast.nodd.units import OPERATION
from holdfast.store import Store

SILENCE = timedelta(minutes=30)
DEAD_TOPICS = {
    "arn:aws:sns:us-east-1:123901341784:NewGOES16Object": "GOES-16 was followed by GOES-19",
    "arn:aws:sns:us-east-1:123901341784:NewGOES17Object": "GOES-17 was followed by GOES-18",
    "arn:aws:sns:us-east-1:811054952067:NewNEXRADLevel2Archive": "NEXRAD moved to another account and bucket",
    "arn:aws:sns:us-east-1:709902155096:NewRRFSObject": "the prototype of RRFS is frozen",
}
RETENTION_MIN_S = 14 * 86400
ATTEMPTS_SEEN = 1000
BUFFER_S = 30.0


class FeedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, or may be."""

    code: str
    severity: str  # warning | critical
    subject: str
    detail: str
    next_step: str


def look_at_ledger(store: Store[Any], now: datetime) -> list[FeedFinding]:
    """Return feeds that have fallen silent, and messages that were not understood."""
    with store.reading() as reading:
        rows = run_statement(reading, "fates")
    heard: dict[str, datetime] = {}
    findings: list[FeedFinding] = []
    for dataset, fate, reason, n, last_at in rows:
        if dataset:
            heard[dataset] = max(heard.get(dataset, time_from(last_at)), time_from(last_at))
        elif fate == "rejected":
            findings.append(
                FeedFinding(
                    code="rejected_messages",
                    severity="warning",
                    subject=reason,
                    detail=f"{n} messages could not be understood",
                    next_step="Look at them with `holdfast nodd rejected`.",
                )
            )
    for dataset, last in sorted(heard.items()):
        if now - last > SILENCE:
            findings.append(
                FeedFinding(
                    code="silent_feed",
                    severity="critical",
                    subject=dataset,
                    detail=f"nothing was heard since {last.isoformat()}",
                    next_step=f"Check the subscription; `holdfast nodd reconcile {dataset} --date {last:%Y-%m-%d}`.",
                )
            )
    return findings


def look_at_queue(queue: Queue, dead: Queue | None, datasets: Datasets) -> list[FeedFinding]:
    """Return what is wrong with a queue: who may write to it, how long it keeps, and what has died."""
    told = queue.attributes()
    findings = [*_policy(told, datasets)]
    if int(told.get("ApproximateNumberOfMessagesNotVisible", 0)) > 100_000:
        findings.append(
            FeedFinding(
                code="in_flight_limit",
                severity="critical",
                subject="queue",
                detail="so many messages are in flight that the queue looks empty",
                next_step="Stop other readers of this queue.",
            )
        )
    if dead is None:
        return findings
    letters = dead.attributes()
    if int(letters.get("MessageRetentionPeriod", 0)) < RETENTION_MIN_S:
        findings.append(
            FeedFinding(
                code="dead_letters_expire",
                severity="warning",
                subject="dead-letter queue",
                detail="it keeps messages for less than 14 days, counted from when they were first sent",
                next_step="Set MessageRetentionPeriod to 1209600.",
            )
        )
    if n := int(letters.get("ApproximateNumberOfMessages", 0)):
        findings.append(
            FeedFinding(
                code="dead_letters",
                severity="critical",
                subject="dead-letter queue",
                detail=f"{n} messages have died",
                next_step="Drain it: `holdfast nodd drain-dlq --help`.",
            )
        )
    return findings


def look_at_visibility(store: Store[Any], queue: Queue) -> list[FeedFinding]:
    """Return whether a message is invisible for too short a time: less than 99 of 100 attempts take, and a buffer."""
    with store.reading() as reading:
        rows = run_statement(reading, "last_attempts", operation=OPERATION, n=ATTEMPTS_SEEN)
    took_s = sorted((_moment(ended) - _moment(began)).total_seconds() for began, ended in rows)
    if not took_s:
        return []
    p99_s = took_s[(99 * len(took_s) - 1) // 100]
    visibility_s = int(queue.attributes().get("VisibilityTimeout", 0))
    if visibility_s >= p99_s + BUFFER_S:
        return []
    return [
        FeedFinding(
            code="visibility_too_short",
            severity="warning",
            subject="queue",
            detail=f"99 of 100 attempts take up to {p99_s:.1f} s, and a message is invisible for {visibility_s} s",
            next_step=f"Set VisibilityTimeout to {math.ceil(max(2 * p99_s, p99_s + BUFFER_S))} or more.",
        )
    ]


def _moment(value: datetime | str) -> datetime:
    return value if isinstance(value, datetime) else time_from(value)


def _policy(told: dict[str, str], datasets: Datasets) -> list[FeedFinding]:
    findings: list[FeedFinding] = []
    try:
        statements = json.loads(told.get("Policy", "{}")).get("Statement", [])
    except ValueError:
        statements = []
    sources: list[str] = []
    for statement in statements if isinstance(statements, list) else [statements]:
        condition = json.dumps(statement.get("Condition", {}))
        named = [arn for arn in (*datasets.topics(), *DEAD_TOPICS) if arn in condition]
        sources += named
        if statement.get("Effect") == "Allow" and "aws:SourceArn" not in condition:
            findings.append(
                FeedFinding(
                    code="open_queue",
                    severity="critical",
                    subject="queue policy",
                    detail="any topic may write to this queue: the policy names no aws:SourceArn",
                    next_step="Let `holdfast nodd subscribe` print the policy.",
                )
            )
    findings += [
        FeedFinding(
            code="dead_topic",
            severity="critical",
            subject=arn,
            detail=DEAD_TOPICS[arn],
            next_step="Subscribe to the topic that followed: `holdfast nodd datasets`.",
        )
        for arn in sources
        if arn in DEAD_TOPICS
    ]
    return findings


def look_at_subscription(attributes: dict[str, str]) -> list[FeedFinding]:
    """Return what is wrong with a subscription's filter: by attributes, nothing of S3's notices gets through."""
    if attributes.get("FilterPolicy") and attributes.get("FilterPolicyScope", "MessageAttributes") != "MessageBody":
        return [
            FeedFinding(
                code="wrong_filter_scope",
                severity="critical",
                subject=attributes.get("TopicArn", "subscription"),
                detail="the filter looks at attributes, which these notices do not have: everything is dropped",
                next_step="Set FilterPolicyScope to MessageBody, then the policy; it takes up to 15 minutes.",
            )
        ]
    return []
