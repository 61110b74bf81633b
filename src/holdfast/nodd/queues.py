"""SQS, as the feed needs it: receive, delete, keep invisible, send, and what a queue says of itself.

Invariants: every entry of a batch has an id of its own; what a batch could not do is tried again, and then told; a
queue is named by its URL, and nothing of its address goes into the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from holdfast.core.errors import ExtraMissingError, InputError, StoreUnavailableError
from holdfast.engine.failures import error_message

BATCH = 10
WAIT_S = 20
TRIES = 3


class Received(msgspec.Struct, frozen=True):
    """A message that is ours until its visibility timeout ends."""

    body: str
    message_id: str
    receipt: str
    receive_count: int
    sent_at_ms: int | None
    attributes: Mapping[str, str]


class Queue:
    """One SQS queue."""

    def __init__(self, url: str, *, endpoint: str | None = None, region: str = "us-east-1") -> None:
        self.url = url
        self._client = client("sqs", endpoint=endpoint, region=region)

    def receive(self, *, wait_s: int = WAIT_S, n: int = BATCH, visibility_s: int | None = None) -> list[Received]:
        """Return up to ten messages, after waiting for the first."""
        more: dict[str, Any] = {} if visibility_s is None else {"VisibilityTimeout": visibility_s}
        answer = self._asked(
            "receive_message",
            MaxNumberOfMessages=n,
            WaitTimeSeconds=wait_s,
            AttributeNames=["ApproximateReceiveCount", "SentTimestamp"],
            MessageAttributeNames=["All"],
            **more,
        )
        return [_received(message) for message in answer.get("Messages", ())]

    def delete(self, messages: Sequence[Received]) -> list[Received]:
        """Delete messages; return those that could not be deleted, which will come again."""
        return self._each("delete_message_batch", messages, lambda message: {"ReceiptHandle": message.receipt})

    def keep(self, messages: Sequence[Received], seconds: int) -> list[Received]:
        """Keep messages invisible for longer; return those for which that failed."""
        return self._each(
            "change_message_visibility_batch",
            messages,
            lambda message: {"ReceiptHandle": message.receipt, "VisibilityTimeout": seconds},
        )

    def send(self, bodies: Sequence[str]) -> None:
        """Send messages; raise if one could not be sent."""
        for start in range(0, len(bodies), BATCH):
            part = bodies[start : start + BATCH]
            entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(part)]
            answer = self._asked("send_message_batch", Entries=entries)
            if answer.get("Failed"):
                raise _unavailable(f"{len(answer['Failed'])} messages could not be sent")

    def attributes(self) -> dict[str, str]:
        """Return what the queue says of itself."""
        return dict(self._asked("get_queue_attributes", AttributeNames=["All"]).get("Attributes", {}))

    def _each(self, verb: str, messages: Sequence[Received], entry: Any) -> list[Received]:
        left = list({message.receipt: message for message in messages}.values())  # the same receipt twice is one
        refused: list[Received] = []  # for what we have sent: the same again would be refused again
        for _ in range(TRIES):
            failed: list[Received] = []
            for start in range(0, len(left), BATCH):
                part = left[start : start + BATCH]
                entries = [{"Id": str(n), **entry(message)} for n, message in enumerate(part)]
                answer = self._asked(verb, Entries=entries)
                for told in answer.get("Failed", ()):
                    (refused if told.get("SenderFault") else failed).append(part[int(told["Id"])])
            left = failed
        return refused + left

    def _asked(self, verb: str, **how: Any) -> dict[str, Any]:
        with aws_errors("the queue"):
            answer: dict[str, Any] = getattr(self._client, verb)(QueueUrl=self.url, **how)
        return answer


def _received(message: Mapping[str, Any]) -> Received:
    told = message.get("Attributes", {})
    sent = told.get("SentTimestamp")
    attributes = {
        name: str(value.get("StringValue", "")) for name, value in message.get("MessageAttributes", {}).items()
    }
    return Received(
        body=str(message["Body"]),
        message_id=str(message["MessageId"]),
        receipt=str(message["ReceiptHandle"]),
        receive_count=int(told.get("ApproximateReceiveCount", 1)),
        sent_at_ms=int(sent) if sent else None,
        attributes=attributes,
    )


def _unavailable(words: str) -> StoreUnavailableError:
    return StoreUnavailableError(
        words, next_step="Check the queue's URL or the endpoint, the region and the credentials."
    )


@contextmanager
def aws_errors(what: str) -> Iterator[None]:
    """Let AWS be asked for something: an answer that is an error, or none at all, becomes one of ours."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra

    try:
        yield
    except ClientError as error:
        raise _unavailable(f"{what} answered {error.response.get('Error', {}).get('Code', 'an error')}") from None
    except BotoCoreError as error:
        raise _unavailable(f"{what} is out of reach: {type(error).__name__}") from None


def client(service: str, *, endpoint: str | None = None, region: str = "us-east-1") -> Any:
    """Return a client of AWS, with the credentials of the environment."""
    # Longer than a long poll waits.
    config = {"read_timeout": WAIT_S + 15, "connect_timeout": 10, "retries": {"max_attempts": 3, "mode": "standard"}}
    return aws_client(service, endpoint, region, config)


def aws_client(
    service: str, endpoint: str | None, region: str, config: Mapping[str, Any], *, signed: bool = True
) -> Any:
    """Return a client of AWS that is configured so, or raise."""
    try:
        import boto3  # noqa: PLC0415 - an extra
        from botocore import UNSIGNED  # noqa: PLC0415 - an extra
        from botocore.config import Config  # noqa: PLC0415 - an extra
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - an extra
    except ImportError:
        raise ExtraMissingError(
            "the parts for NOAA's data are not installed", next_step="Install them with: pip install 'holdfast[nodd]'"
        ) from None
    how = Config(**config) if signed else Config(**config, signature_version=UNSIGNED)
    try:
        # A session of its own: that of the module keeps what it found in the environment first.
        return boto3.Session().client(service, region_name=region, endpoint_url=endpoint, config=how)
    except (BotoCoreError, ValueError) as error:
        raise InputError(
            f"no client of AWS can be made: {error_message(error)}",
            next_step="Check --endpoint, --region, and the profile of the environment.",
        ) from None
