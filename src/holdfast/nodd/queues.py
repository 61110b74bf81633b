"""SQS queues: receive, delete, extend the visibility, send, and read attributes; and clients of AWS services.

Invariants: every entry of a batch has its own id; entries that failed are tried again, and returned if they still fail;
a queue is named by its URL, which is never written to the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import msgspec

from holdfast.core.errors import InputError, StoreUnavailableError
from holdfast.core.feature_errors import extra
from holdfast.engine.error_texts import error_message

BATCH = 10
WAIT_S = 20
TRIES = 3


class Received(msgspec.Struct, frozen=True):
    """A received message; other readers do not see it until its visibility timeout ends."""

    body: str
    message_id: str
    receipt: str
    sent_at_ms: int | None
    attributes: Mapping[str, str]


class Queue:
    """One SQS queue."""

    def __init__(self, url: str, *, endpoint: str | None = None, region: str = "us-east-1") -> None:
        self.url = url
        self._client = client("sqs", endpoint=endpoint, region=region)

    def receive(self, *, wait_s: int = WAIT_S, n: int = BATCH, visibility_s: int | None = None) -> list[Received]:
        """Wait up to `wait_s` for messages, and return up to ten."""
        more: dict[str, Any] = {} if visibility_s is None else {"VisibilityTimeout": visibility_s}
        answer = self._call(
            "receive_message",
            MaxNumberOfMessages=n,
            WaitTimeSeconds=wait_s,
            AttributeNames=["SentTimestamp"],
            MessageAttributeNames=["All"],
            **more,
        )
        return [_received(message) for message in answer.get("Messages", ())]

    def delete(self, messages: Sequence[Received]) -> list[Received]:
        """Delete messages; return those that could not be deleted, which SQS will deliver again."""
        return self._each("delete_message_batch", messages, lambda message: {"ReceiptHandle": message.receipt})

    def keep(self, messages: Sequence[Received], seconds: int) -> list[Received]:
        """Set the visibility timeout of messages; return those for which that failed."""
        return self._each(
            "change_message_visibility_batch",
            messages,
            lambda message: {"ReceiptHandle": message.receipt, "VisibilityTimeout": seconds},
        )

    def send(self, bodies: Sequence[str]) -> None:
        """Send messages; raise StoreUnavailableError if one could not be sent."""
        for start in range(0, len(bodies), BATCH):
            part = bodies[start : start + BATCH]
            entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(part)]
            answer = self._call("send_message_batch", Entries=entries)
            if answer.get("Failed"):
                raise _unavailable(f"{len(answer['Failed'])} messages could not be sent")

    def attributes(self) -> dict[str, str]:
        return dict(self._call("get_queue_attributes", AttributeNames=["All"]).get("Attributes", {}))

    def _each(self, verb: str, messages: Sequence[Received], entry: Any) -> list[Received]:
        left = list({message.receipt: message for message in messages}.values())  # each receipt once
        refused: list[Received] = []  # by a fault of the sender: another try would fail in the same way
        for _ in range(TRIES):
            failed: list[Received] = []
            for start in range(0, len(left), BATCH):
                part = left[start : start + BATCH]
                entries = [{"Id": str(n), **entry(message)} for n, message in enumerate(part)]
                answer = self._call(verb, Entries=entries)
                for failure in answer.get("Failed", ()):
                    (refused if failure.get("SenderFault") else failed).append(part[int(failure["Id"])])
            left = failed
        return refused + left

    def _call(self, verb: str, **how: Any) -> dict[str, Any]:
        with aws_errors("the queue"):
            answer: dict[str, Any] = getattr(self._client, verb)(QueueUrl=self.url, **how)
        return answer


def _received(message: Mapping[str, Any]) -> Received:
    system = message.get("Attributes", {})
    sent = system.get("SentTimestamp")
    attributes = {
        name: str(value.get("StringValue", "")) for name, value in message.get("MessageAttributes", {}).items()
    }
    return Received(
        body=str(message["Body"]),
        message_id=str(message["MessageId"]),
        receipt=str(message["ReceiptHandle"]),
        sent_at_ms=int(sent) if sent else None,
        attributes=attributes,
    )


QUEUE_URL = "the queue's URL"


def _unavailable(message: str, *, check: str = QUEUE_URL) -> StoreUnavailableError:
    return StoreUnavailableError(message, next_step=f"Check {check}, --endpoint, --region and the credentials.")


@contextmanager
def aws_errors(what: str, *, check: str = QUEUE_URL) -> Iterator[None]:
    """Turn errors of AWS calls in a block of code into StoreUnavailableError, which says what to check."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "an error")
        raise _unavailable(f"{what} answered {code}", check=check) from None
    except BotoCoreError as error:
        raise _unavailable(f"{what} cannot be reached: {type(error).__name__}", check=check) from None


def client(service: str, *, endpoint: str | None = None, region: str = "us-east-1") -> Any:
    """Return a client of an AWS service with the credentials of the environment."""
    # The read timeout is longer than a long poll.
    config = {"read_timeout": WAIT_S + 15, "connect_timeout": 10, "retries": {"max_attempts": 3, "mode": "standard"}}
    return aws_client(service, endpoint, region, config)


def aws_client(
    service: str, endpoint: str | None, region: str, config: Mapping[str, Any], *, signed: bool = True
) -> Any:
    """Return a client of an AWS service; raise InputError for wrong settings, ExtraMissingError without botocore."""
    with extra("nodd"):
        from botocore import UNSIGNED  # noqa: PLC0415 - an extra
        from botocore.config import Config  # noqa: PLC0415 - an extra
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - an extra
        from botocore.session import Session  # noqa: PLC0415 - an extra
    how = Config(**config) if signed else Config(**config, signature_version=UNSIGNED)
    try:
        # A new session, because one that is kept caches the first environment that it saw.
        session = Session()
        session.register_component("data_loader", _service_models(session.get_config_variable("data_path")))
        return session.create_client(service, region_name=region, endpoint_url=endpoint, config=how)
    except (BotoCoreError, ValueError) as error:
        raise InputError(
            f"cannot create a client of {service}: {error_message(error)}",
            next_step="Check --endpoint, --region and the AWS_PROFILE of the environment.",
        ) from None


@cache
def _service_models(path: str | None) -> Any:
    """Return the loader of botocore's descriptions of services, which takes 0.1 s to read one without its cache."""
    from botocore.loaders import create_loader  # noqa: PLC0415 - an extra

    return create_loader(path)
