"""Subscription to a feed: the queue, its dead-letter queue, the queue's policy, and the subscription to the topic.

Invariants: the policy allows the topic by its ARN, and keeps the topics that it already allows; a second dataset of a
topic widens the filter of the one subscription that the queue has; the filter is on the body of the message, and its
scope is set with it; the printed plan is exactly what `--apply` adds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.errors import InputError
from holdfast.nodd.dataset import Dataset
from holdfast.nodd.queues import aws_errors, client

CHUNKS = "nexrad-chunk"  # the envelope of chunks
PRIMARY, DEAD = "nodd-primary-queue", "nodd-dlq"
DEAD_AFTER = 5
DEAD_RETENTION_S = 14 * 86400
VISIBILITY_S = 300
VISIBILITY_DEV_S = 120
_ACCOUNT = re.compile(r"[0-9]{12}")


class SubscriptionEnv(StrEnum):
    """The environment of a subscription."""

    DEV = "dev"
    STAGE = "stage"
    PROD = "prod"


class SubscriptionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The AWS resources for one topic of a dataset."""

    dataset: str
    bucket: str
    topic: str
    queue: str
    dead_letter_queue: str
    queue_attributes: dict[str, str]
    policy: dict[str, Any]
    subscription: dict[str, str]


def plan(
    dataset: Dataset,
    bucket: str,
    *,
    account: str,
    queue: str = PRIMARY,
    prefixes: tuple[str, ...] = (),
    sites: tuple[str, ...] = (),
    env: SubscriptionEnv = SubscriptionEnv.PROD,
) -> SubscriptionPlan:
    """Return the resources needed to receive the notices of one bucket, for chunks of some radars only.

    Raises InputError for a bad account number, and for sites of a dataset other than chunks.
    """
    if sites and dataset.spec.envelope != CHUNKS:
        raise InputError(
            f"dataset {dataset.name} cannot be filtered by site",
            next_step="Use --prefix, or name the dataset nexrad-chunks.",
            context={"dataset": dataset.name},
        )
    if not _ACCOUNT.fullmatch(account):
        raise InputError(
            f"{account!r} is not the number of an AWS account",
            next_step="Give 12 digits without dashes, for example --account 123456789012.",
            context={"account": account},
        )
    topic = dataset.spec.buckets[bucket]
    region = topic.split(":")[3]
    arn = f"arn:aws:sqs:{region}:{account}:{queue}"
    dead = DEAD if queue == PRIMARY else f"{queue}-dlq"
    redrive = {"deadLetterTargetArn": f"arn:aws:sqs:{region}:{account}:{dead}", "maxReceiveCount": DEAD_AFTER}
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": _sid(topic),
                "Effect": "Allow",
                "Principal": {"Service": "sns.amazonaws.com"},
                "Action": "sqs:SendMessage",
                "Resource": arn,
                # Without this condition every SNS topic could write to the queue.
                "Condition": {"ArnEquals": {"aws:SourceArn": topic}},
            }
        ],
    }
    subscription = {"RawMessageDelivery": "false"}
    chosen = prefixes or dataset.spec.subscribe_prefixes
    if chosen and dataset.spec.envelope == "s3-event":
        keys = [{"prefix": prefix} for prefix in chosen]
        # The default scope, MessageAttributes, would drop every message.
        subscription["FilterPolicyScope"] = "MessageBody"
        subscription["FilterPolicy"] = json.dumps({"Records": {"s3": {"object": {"key": keys}}}}, sort_keys=True)
    elif sites:
        # The messages of chunks are no S3 events: SNS filters them by their attributes.
        subscription["FilterPolicyScope"] = "MessageAttributes"
        subscription["FilterPolicy"] = json.dumps({"SiteID": sorted(sites)}, sort_keys=True)
    return SubscriptionPlan(
        dataset=dataset.name,
        bucket=bucket,
        topic=topic,
        queue=queue,
        dead_letter_queue=dead,
        queue_attributes={
            "VisibilityTimeout": str(VISIBILITY_DEV_S if env is SubscriptionEnv.DEV else VISIBILITY_S),
            "MessageRetentionPeriod": str(DEAD_RETENTION_S),
            "RedrivePolicy": json.dumps(redrive, sort_keys=True),
            "Policy": json.dumps(policy, sort_keys=True),
        },
        policy=policy,
        subscription=subscription,
    )


def carry_out(wanted: SubscriptionPlan, *, endpoint: str | None = None, region: str = "us-east-1") -> dict[str, str]:
    """Create the resources of a plan, and return the queue's URL and the subscription's ARN. Safe to run twice.

    Raises StoreUnavailableError if AWS cannot be reached or refuses.
    """
    sqs, sns = client("sqs", endpoint=endpoint, region=region), client("sns", endpoint=endpoint, region=region)
    with aws_errors("AWS"):
        return _made(wanted, sqs, sns)


def _made(wanted: SubscriptionPlan, sqs: Any, sns: Any) -> dict[str, str]:
    retention = {"MessageRetentionPeriod": str(DEAD_RETENTION_S)}
    sqs.create_queue(QueueName=wanted.dead_letter_queue, Attributes=retention)
    url = str(sqs.create_queue(QueueName=wanted.queue)["QueueUrl"])
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn", "Policy"])["Attributes"]
    policy = _joined(attributes.get("Policy"), wanted.policy)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={**wanted.queue_attributes, "Policy": policy})
    arn = attributes["QueueArn"]
    if existing := _existing(sns, wanted.topic, arn):
        _widen(sns, existing, wanted.subscription)
        return {"queue_url": url, "subscription": existing}
    with aws_errors("the topic", check=f"the topic {wanted.topic}"):
        made = sns.subscribe(
            TopicArn=wanted.topic,
            Protocol="sqs",
            Endpoint=arn,
            Attributes=dict(wanted.subscription),
            ReturnSubscriptionArn=True,
        )
    return {"queue_url": url, "subscription": str(made["SubscriptionArn"])}


def _existing(sns: Any, topic: str, queue_arn: str) -> str | None:
    """Return the subscription of a queue to a topic: SNS has one for both, also if two datasets share the topic."""
    for page in sns.get_paginator("list_subscriptions").paginate():
        for one in page.get("Subscriptions", ()):
            arn = str(one.get("SubscriptionArn", ""))
            if (one.get("TopicArn"), one.get("Endpoint")) == (topic, queue_arn) and arn.startswith("arn:"):
                return arn
    return None


def _widen(sns: Any, subscription: str, wanted: dict[str, str]) -> None:
    """Widen the filter of a subscription to what a plan needs, in addition to what it lets through."""
    attributes = sns.get_subscription_attributes(SubscriptionArn=subscription)["Attributes"]
    joined = _joined_filter(attributes, wanted)
    # The scope first: a policy is checked against it.
    for name in ("FilterPolicyScope", "FilterPolicy"):
        value = joined.get(name, "")
        if value != attributes.get(name, ""):
            sns.set_subscription_attributes(SubscriptionArn=subscription, AttributeName=name, AttributeValue=value)


def _joined_filter(current: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the filter that lets through what either filter does; no policy lets everything through."""
    before, after = (json.loads(one.get("FilterPolicy") or "{}") for one in (current, wanted))
    if not before or not after:
        return {"FilterPolicyScope": wanted.get("FilterPolicyScope", "MessageBody"), "FilterPolicy": "{}"}
    if current.get("FilterPolicyScope") != wanted.get("FilterPolicyScope"):
        return dict(wanted)  # a filter of the wrong scope lets nothing through
    if "SiteID" in after:
        policy: dict[str, Any] = {"SiteID": sorted({*before.get("SiteID", ()), *after["SiteID"]})}
    else:
        keys = [key for one in (before, after) for key in one["Records"]["s3"]["object"]["key"]]
        policy = {"Records": {"s3": {"object": {"key": [key for n, key in enumerate(keys) if key not in keys[:n]]}}}}
    return {**wanted, "FilterPolicy": json.dumps(policy, sort_keys=True)}


def _sid(topic: str) -> str:
    # A Sid has only letters and digits. It includes the account, because two accounts have topics of the same name.
    return "Let" + "".join(one for part in topic.split(":")[4:] for one in part if one.isalnum())


def _joined(current: str | None, wanted: dict[str, Any]) -> str:
    """Return a policy with the statements of the current one and of a plan."""
    try:
        before = json.loads(current or "{}").get("Statement", [])
    except ValueError:
        before = []
    mine = {statement["Sid"] for statement in wanted["Statement"]}
    kept = [one for one in (before if isinstance(before, list) else [before]) if one.get("Sid") not in mine]
    return json.dumps({**wanted, "Statement": [*kept, *wanted["Statement"]]}, sort_keys=True)
