"""Diagnosis of a feed: retired topics, wrong filter scopes, silent feeds, messages in the dead-letter queue.

Invariants: nothing is changed; each finding says what is wrong, how that is known, and what to do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.records import time_from
from holdfast.core.spans import counted
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.queues import Queue
from holdfast.nodd.statements import run_statement
from holdfast.nodd.units import OPERATION
from holdfast.store import Store

RETIRED_TOPICS = {
    "arn:aws:sns:us-east-1:123901341784:NewGOES16Object": "retired: GOES-19 replaced GOES-16",
    "arn:aws:sns:us-east-1:123901341784:NewGOES17Object": "retired: GOES-18 replaced GOES-17",
    "arn:aws:sns:us-east-1:811054952067:NewNEXRADLevel2Archive": "retired: NEXRAD moved to another account and bucket",
    "arn:aws:sns:us-east-1:709902155096:NewRRFSObject": "retired: the prototype of RRFS gets no new objects",
}
UNKNOWN_BUCKET = "unknown_bucket"
STRANGE_SEEN = 1000
BY_ATTRIBUTES = ":NewNEXRADLevel2ObjectFilterable"  # whose messages have attributes
RETENTION_MIN_S = 14 * 86400
ATTEMPTS_SEEN = 1000
BUFFER_S = 30.0


class FeedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a feed, or a possible one."""

    code: str
    severity: str  # warning | critical
    subject: str
    detail: str
    next_step: str


def _warning(code: str, subject: str, detail: str, next_step: str) -> FeedFinding:
    return FeedFinding(code=code, severity="warning", subject=subject, detail=detail, next_step=next_step)


def _critical(code: str, subject: str, detail: str, next_step: str) -> FeedFinding:
    return FeedFinding(code=code, severity="critical", subject=subject, detail=detail, next_step=next_step)


def look_at_ledger(store: Store[Any], now: datetime, datasets: Datasets) -> list[FeedFinding]:
    """Return silent and paused datasets, counts of rejected messages, and messages of buckets that no dataset has."""
    with store.reading() as reading:
        rows = run_statement(reading, "fates")
        strange = run_statement(reading, "list_ignored", reason=UNKNOWN_BUCKET, n=STRANGE_SEEN)
        waiting = dict(run_statement(reading, "backlog", operation=OPERATION))
        paused = [name for name in reading.queues.paused() if name in datasets]
    heard: dict[str, datetime] = {}
    findings: list[FeedFinding] = []
    for dataset, fate, reason, n, last_at in rows:
        if dataset:
            heard[dataset] = max(heard.get(dataset, time_from(last_at)), time_from(last_at))
        elif fate == "rejected":
            findings.append(
                _warning(
                    "rejected_messages",
                    reason,
                    counted(n, "rejected message"),
                    next_step="List them: `holdfast nodd rejected`.",
                )
            )
    findings += [*_strange(strange), *_paused(paused, waiting)]
    for dataset, last in sorted(heard.items()):
        if dataset in datasets and now - last > timedelta(seconds=datasets[dataset].spec.policy.silence_s):
            findings.append(
                _critical(
                    "silent_feed",
                    dataset,
                    f"no notice since {last.isoformat()}; this feed is never silent for more than"
                    f" {datasets[dataset].spec.policy.silence}",
                    next_step="Check the subscription, then look for missed objects:"
                    f" `holdfast nodd reconcile {dataset} --date {last:%Y-%m-%d}`.",
                )
            )
    return findings


def _strange(rows: Sequence[Sequence[Any]]) -> list[FeedFinding]:
    """Return a finding for each bucket that no dataset has."""
    times: dict[str, int] = {}
    for _, shape, _, n, *_ in rows:
        bucket = str(shape).removeprefix("s3://").partition("/")[0]
        times[bucket] = times.get(bucket, 0) + int(n)
    return [
        _warning(
            UNKNOWN_BUCKET,
            bucket,
            f"{counted(n, 'message')} of a bucket that no dataset has, ignored",
            next_step="Remove its subscription from the queue, or describe the dataset: `--datasets DIR`."
            f" List the messages: `holdfast nodd ignored --reason {UNKNOWN_BUCKET}`.",
        )
        for bucket, n in sorted(times.items())
    ]


def _paused(paused: Sequence[str], waiting: Mapping[str, int]) -> list[FeedFinding]:
    return [
        _warning(
            "paused_with_backlog",
            name,
            f"the dataset is paused, with {counted(waiting[name], 'waiting unit')}",
            next_step=f"Resume it: `holdfast nodd resume {name} --reason TEXT`.",
        )
        for name in sorted(paused)
        if waiting.get(name)
    ]


def look_at_queue(queue: Queue, dead: Queue | None, datasets: Datasets) -> list[FeedFinding]:
    """Return problems of a queue's policy, and of the retention and messages of its dead-letter queue."""
    attributes = queue.attributes()
    findings = [*_policy(attributes, datasets)]
    if int(attributes.get("ApproximateNumberOfMessagesNotVisible", 0)) > 100_000:
        findings.append(
            _critical(
                "in_flight_limit",
                "queue",
                "more than 100,000 messages are in flight: SQS delivers no more until some are deleted",
                next_step="Stop other readers of this queue.",
            )
        )
    if dead is None:
        return findings
    dead_attributes = dead.attributes()
    if int(dead_attributes.get("MessageRetentionPeriod", 0)) < RETENTION_MIN_S:
        findings.append(
            _warning(
                "dead_letters_expire",
                "dead-letter queue",
                "its retention is less than 14 days, counted from when a message was first sent",
                next_step="Set MessageRetentionPeriod to 1209600.",
            )
        )
    if n := int(dead_attributes.get("ApproximateNumberOfMessages", 0)):
        findings.append(
            _critical(
                "dead_letters",
                "dead-letter queue",
                counted(n, "message"),
                next_step=f"Drain it: `holdfast nodd drain-dlq --queue {dead.url} --reason TEXT`.",
            )
        )
    return findings


def look_at_visibility(store: Store[Any], queue: Queue) -> list[FeedFinding]:
    """Return a finding if the visibility timeout is shorter than the 99th percentile of attempts and 30 s."""
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
        _warning(
            "visibility_too_short",
            "queue",
            f"99 % of attempts take up to {p99_s:.1f} s, but the visibility timeout is {visibility_s} s",
            next_step=f"Set VisibilityTimeout to {math.ceil(max(2 * p99_s, p99_s + BUFFER_S))} or more.",
        )
    ]


def _moment(value: datetime | str) -> datetime:
    return value if isinstance(value, datetime) else time_from(value)


def _policy(attributes: dict[str, str], datasets: Datasets) -> list[FeedFinding]:
    findings: list[FeedFinding] = []
    try:
        statements = json.loads(attributes.get("Policy", "{}")).get("Statement", [])
    except ValueError:
        statements = []
    if not statements:
        findings.append(
            _critical(
                "no_policy",
                "queue policy",
                "the queue has no policy, so no topic can write to it",
                next_step="Print the policy of a dataset: `holdfast nodd subscribe DATASET --account NUMBER`.",
            )
        )
    sources: list[str] = []
    for statement in statements if isinstance(statements, list) else [statements]:
        condition = json.dumps(statement.get("Condition", {}))
        named = [arn for arn in (*datasets.topics(), *RETIRED_TOPICS) if arn in condition]
        sources += named
        if statement.get("Effect") == "Allow" and "aws:SourceArn" not in condition:
            findings.append(
                _critical(
                    "open_queue",
                    "queue policy",
                    "every SNS topic can write to this queue: the policy has no aws:SourceArn",
                    next_step="Print a correct policy: `holdfast nodd subscribe DATASET --account NUMBER`.",
                )
            )
    return [*findings, *(_dead_topic(arn) for arn in sources if arn in RETIRED_TOPICS)]


def _dead_topic(arn: str) -> FeedFinding:
    return _critical(
        "dead_topic",
        arn,
        RETIRED_TOPICS[arn],
        next_step="Subscribe to the current topic: `holdfast nodd datasets` lists it.",
    )


def look_at_subscription(attributes: dict[str, str]) -> list[FeedFinding]:
    """Return findings about a subscription: a retired topic, and a filter of attributes that S3 notices do not have."""
    topic = attributes.get("TopicArn", "")
    findings = [_dead_topic(topic)] if topic in RETIRED_TOPICS else []
    by_attributes = attributes.get("FilterPolicyScope", "MessageAttributes") != "MessageBody"
    if attributes.get("FilterPolicy") and by_attributes and not topic.endswith(BY_ATTRIBUTES):
        findings.append(
            _critical(
                "wrong_filter_scope",
                attributes.get("TopicArn", "subscription"),
                "the filter uses message attributes, which these notices do not have: it drops every message",
                "Set FilterPolicyScope to MessageBody, then set the policy again; allow 15 minutes.",
            )
        )
    return findings
