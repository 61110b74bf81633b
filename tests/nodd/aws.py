"""A server on loopback that speaks S3, SNS and SQS: moto, in this process, on a free port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config

REGION = "us-east-1"


class Cloud:
    """The server's address, and clients of it."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.s3, self.sns, self.sqs = (self.client(name) for name in ("s3", "sns", "sqs"))

    def client(self, service: str) -> Any:
        """Return a client with fake credentials."""
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106 - of no worth
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )

    def queue(self, *, dead_after: int | None = None, visibility_s: int = 30) -> tuple[str, str | None]:
        """Make a queue, and a dead-letter queue for it if requested; return their URLs."""
        attributes = {"VisibilityTimeout": str(visibility_s)}
        dead = None
        if dead_after is not None:
            dead = str(self.sqs.create_queue(QueueName=f"dead-{uuid4().hex[:8]}")["QueueUrl"])
            policy = {"deadLetterTargetArn": self.arn(dead), "maxReceiveCount": str(dead_after)}
            attributes["RedrivePolicy"] = json.dumps(policy)
        made = self.sqs.create_queue(QueueName=f"queue-{uuid4().hex[:8]}", Attributes=attributes)
        return str(made["QueueUrl"]), dead

    def arn(self, queue: str) -> str:
        """Return the ARN of a queue."""
        answer = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])

    def bucket(self, name: str) -> None:
        """Make a bucket with public read access, if it does not exist."""
        self.s3.create_bucket(Bucket=name)

    def announce_to(self, bucket: str, queue: str, *, raw: bool = False) -> str:
        """Let a bucket announce its objects to a queue by a topic; return the topic's ARN."""
        topic = str(self.sns.create_topic(Name=f"topic-{uuid4().hex[:8]}")["TopicArn"])
        attributes = {"RawMessageDelivery": "true"} if raw else {}
        self.sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=self.arn(queue), Attributes=attributes)
        configuration = {"TopicConfigurations": [{"TopicArn": topic, "Events": ["s3:ObjectCreated:*"]}]}
        self.s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=configuration)
        return topic


@contextmanager
def running() -> Iterator[Cloud]:
    """Run the server for a block."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield Cloud(f"http://{host}:{port}")
    finally:
        server.stop()


@pytest.fixture(scope="session")
def cloud() -> Iterator[Cloud]:
    """The session's server; each test makes queues and topics of its own."""
    with running() as found:
        yield found
