"""Subscribing to a feed: the queue, its dead-letter queue, the policy that lets one topic in, and the subscription.

Invariants: the policy names the topic's ARN, and takes nothing away from topics that were let in before; the filter is
on the body of the message, and its scope is set before it; what is printed is exactly what would be added.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.errors import InputError
from holdfast.nodd.dataset import Dataset
from holdfast.nodd.queues import aws_errors, client

PRIMARY, DEAD = "nodd-primary-queue", "nodd-dlq"
DEAD_AFTER = 5
DEAD_RETENTION_S = 14 * 86400
VISIBILITY_S = 300
VISIBILITY_DEV_S = 120
_ACCOUNT = re.compile(r"[0-9]{12}")


class SubscriptionEnv(StrEnum):
    """What a subscription is for."""

    DEV = "dev"
    STAGE = "stage"
    PROD = "prod"


class SubscriptionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be made for one topic of a dataset."""

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
    env: SubscriptionEnv = SubscriptionEnv.PROD,
) -> SubscriptionPlan:
    """Return what has to be made to hear of one bucket of a dataset."""
    if not _ACCOUNT.fullmatch(account):
        raise InputError(
            f"{account!r} is no AWS account",
            next_step="Give its number: twelve digits, without dashes.",
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
                # Without this any topic of anybody could write here.
                "Condition": {"ArnEquals": {"aws:SourceArn": topic}},
            }
        ],
    }
    subscription = {"RawMessageDelivery": "false"}
    chosen = prefixes or dataset.spec.subscribe_prefixes
    if chosen and dataset.spec.envelope == "s3-event":
        keys = [{"prefix": prefix} for prefix in chosen]
        # The scope comes first: by attributes, which is the default, the policy would let nothing through.
        subscription["FilterPolicyScope"] = "MessageBody"
        subscription["FilterPolicy"] = json.dumps({"Records": {"s3": {"object": {"key": keys}}}}, sort_keys=True)
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
    """Make what a plan says; doing it twice changes nothing. Return the queue's URL and the subscription's ARN."""
    sqs, sns = client("sqs", endpoint=endpoint, region=region), client("sns", endpoint=endpoint, region=region)
    with aws_errors("AWS"):
        return _made(wanted, sqs, sns)


def _made(wanted: SubscriptionPlan, sqs: Any, sns: Any) -> dict[str, str]:
    retention = {"MessageRetentionPeriod": str(DEAD_RETENTION_S)}
    sqs.create_queue(QueueName=wanted.dead_letter_queue, Attributes=retention)
    url = str(sqs.create_queue(QueueName=wanted.queue)["QueueUrl"])
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn", "Policy"])["Attributes"]
    policy = _joined(told.get("Policy"), wanted.policy)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={**wanted.queue_attributes, "Policy": policy})
    arn = told["QueueArn"]
    made = sns.subscribe(
        TopicArn=wanted.topic,
        Protocol="sqs",
        Endpoint=arn,
        Attributes=dict(wanted.subscription),
        ReturnSubscriptionArn=True,
    )
    return {"queue_url": url, "subscription": str(made["SubscriptionArn"])}


def _sid(topic: str) -> str:
    # Letters and digits alone, and another for each topic: two accounts have topics of the same name.
    return "Let" + "".join(one for part in topic.split(":")[4:] for one in part if one.isalnum())


def _joined(standing: str | None, wanted: dict[str, Any]) -> str:
    """Return a policy that lets in who was let in before, and whom a plan wants."""
    try:
        before = json.loads(standing or "{}").get("Statement", [])
    except ValueError:
        before = []
    mine = {statement["Sid"] for statement in wanted["Statement"]}
    kept = [one for one in (before if isinstance(before, list) else [before]) if one.get("Sid") not in mine]
    return json.dumps({**wanted, "Statement": [*kept, *wanted["Statement"]]}, sort_keys=True)
