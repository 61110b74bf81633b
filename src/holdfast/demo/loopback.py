"""S3, SNS and SQS on loopback for the demonstration.

Invariants: nothing leaves this machine.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from holdfast.core.errors import ExtraMissingError
from holdfast.demo.objects import BUCKETS, DemoObject
from holdfast.nodd.queues import Queue, client


class LoopbackAws:
    """A local server with the buckets, topics and queues of the demonstration."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._s3, self._sns, self._sqs = (client(name, endpoint=endpoint) for name in ("s3", "sns", "sqs"))
        dead = str(self._sqs.create_queue(QueueName="nodd-dlq")["QueueUrl"])
        url = str(self._sqs.create_queue(QueueName="nodd-primary-queue")["QueueUrl"])
        self.queue, self.dead = (Queue(found, endpoint=endpoint) for found in (url, dead))
        attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        self._arn = str(attributes["Attributes"]["QueueArn"])
        self._topic = ""
        for dataset, bucket in BUCKETS.items():
            self._s3.create_bucket(Bucket=bucket, ACL="public-read")
            self._announce(dataset, bucket)

    def _announce(self, dataset: str, bucket: str) -> None:
        topic = str(self._sns.create_topic(Name=f"New-{dataset}")["TopicArn"])
        self._sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=self._arn)
        if dataset == "nexrad-chunks":
            self._topic = topic  # `put` sends its notices: they are not S3 events
            return
        configuration = {"TopicConfigurations": [{"TopicArn": topic, "Events": ["s3:ObjectCreated:*"]}]}
        self._s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=configuration)

    def put(self, one: DemoObject) -> None:
        """Write an object. Its bucket sends a notice."""
        self._s3.put_object(Bucket=one.bucket, Key=one.key, Body=one.data, ACL="public-read")
        if one.dataset == "nexrad-chunks":
            self._sns.publish(TopicArn=self._topic, Message=chunk_notice(one))


def chunk_notice(one: DemoObject) -> str:
    """Return the notice of a NEXRAD chunk in the format of its feed."""
    station, volume, name = one.key.split("/")
    day, time, chunk, kind = name.split("-")
    when = datetime.strptime(f"{day}{time}", "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    fields = {
        "S3Bucket": one.bucket, "Key": one.key, "SiteID": station, "DateTime": f"{when:%Y-%m-%dT%H:%M:%S}",
        "VolumeID": int(volume), "ChunkID": int(chunk), "ChunkType": kind, "L2Version": "V06",
    }  # fmt: skip
    return json.dumps(fields)


def notice(one: DemoObject, now: datetime, *, sequencer: str | None = None, etag: str = "0" * 32) -> str:
    """Return an S3 event for an object, for notices that the local server does not send by itself."""
    fields: dict[str, Any] = {"key": one.key, "size": len(one.data), "eTag": etag}
    if sequencer is not None:
        fields["sequencer"] = sequencer
    record = {
        "eventVersion": "2.1", "eventName": "ObjectCreated:Put", "eventTime": now.isoformat(),
        "s3": {"bucket": {"name": one.bucket}, "object": fields},
    }  # fmt: skip
    return json.dumps({"Records": [record]})


@contextmanager
def loopback_aws() -> Iterator[LoopbackAws]:
    """Run the server on a free port of loopback for a block of code."""
    try:
        from moto.server import ThreadedMotoServer  # noqa: PLC0415 - only for the demonstration
    except ImportError:
        raise ExtraMissingError(
            "the demonstration needs the development dependencies (moto)", next_step="Run it with: make demo"
        ) from None
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "demonstration")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield LoopbackAws(f"http://{host}:{port}")
    finally:
        server.stop()
