"""The kind of a failure: by type, or by the status that the exception carries; never by its text."""

from __future__ import annotations

import errno
import socket
import urllib.error
from email.message import Message
from enum import Enum
from typing import Any

import botocore.exceptions
import psycopg.errors
import pytest
import requests

from holdfast import Execution, FailureKind, Ledger
from holdfast.engine.classification import http_status
from holdfast.engine.failures import classify
from holdfast.testing import VirtualClock, drain

pytestmark = pytest.mark.attack("input")

TRANSIENT, RATE_LIMITED, PERMANENT, UNKNOWN = FailureKind


class WithAttributesError(Exception):
    """An exception that a client library might raise."""

    def __init__(self, text: str = "it failed", **attributes: Any) -> None:
        super().__init__(text)
        self.__dict__.update(attributes)


class GrpcStatus(Enum):
    UNAVAILABLE = (14, "unavailable")
    NOT_FOUND = (5, "not found")
    RESOURCE_EXHAUSTED = (8, "resource exhausted")
    INTERNAL = (13, "internal")


class Unreadable(Exception):
    """An exception whose attributes cannot be read."""

    @property
    def response(self) -> object:
        raise RuntimeError("404")

    @property
    def code(self) -> object:
        raise KeyboardInterrupt


def _requests(status: int) -> Exception:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"{status} for order 200", response=response)


def _urllib(status: int) -> Exception:
    return urllib.error.HTTPError("http://localhost/", status, "no", Message(), None)


def _botocore(status: int, code: str = "X") -> Exception:
    answer: Any = {"Error": {"Code": code, "Message": "order 404"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error: Exception = botocore.exceptions.ClientError(answer, "GetObject")
    return error


@pytest.mark.req("G-20")
@pytest.mark.parametrize(
    "error, kind",
    [
        (TimeoutError("x"), TRANSIENT), (ConnectionResetError("x"), TRANSIENT), (PermissionError("x"), PERMANENT),
        (OSError(errno.EHOSTUNREACH, "x"), TRANSIENT), (OSError(errno.ENOSPC, "x"), UNKNOWN),
        (socket.gaierror(socket.EAI_AGAIN, "x"), TRANSIENT), (socket.gaierror(socket.EAI_NONAME, "x"), UNKNOWN),
        (FileNotFoundError("not found"), UNKNOWN), (ValueError("something else"), UNKNOWN), (RuntimeError(), UNKNOWN),
    ],
)  # fmt: skip
def test_failures_are_classified_by_type(error: Exception, kind: FailureKind) -> None:
    assert classify(error) is kind


@pytest.mark.parametrize(
    "text",
    [
        "order 404 is late", "404", "status 404", "HTTP 401", "403", "429", "HTTP 429", "line 502", "HTTP 503", "504",
        "customer 401 has 403 items", "port 502", "FileNotFound: 404 for object a", "customer not found",
        "permission denied", "Access Denied", "authentication failed", "invalid credentials", "Rate limit exceeded",
        "Too Many Requests", "quota exceeded", "Connection refused", "timed out", "Service Unavailable", "network",
    ],
)  # fmt: skip
def test_the_text_of_an_exception_is_not_used_to_classify_it(text: str) -> None:
    assert classify(RuntimeError(text)) is UNKNOWN
    assert classify(ValueError(text, 404)) is UNKNOWN


@pytest.mark.parametrize(
    "status, kind",
    [
        (401, PERMANENT), (403, PERMANENT), (404, PERMANENT), (410, PERMANENT), (429, RATE_LIMITED), (408, TRANSIENT),
        (502, TRANSIENT), (503, TRANSIENT), (504, TRANSIENT), (400, UNKNOWN), (409, UNKNOWN), (500, UNKNOWN),
    ],
)  # fmt: skip
def test_an_exception_is_classified_by_its_status(status: int, kind: FailureKind) -> None:
    errors = [
        _requests(status),
        _urllib(status),
        _botocore(status),
        WithAttributesError(status=status),
        WithAttributesError(status_code=status),
        WithAttributesError(http_status=status),
        WithAttributesError(code=status),
        WithAttributesError(response=WithAttributesError(status=status)),
        WithAttributesError("order 404: not found, 429", status=status),  # the text says something else
    ]
    assert [(http_status(error), classify(error)) for error in errors] == [(status, kind)] * len(errors)


@pytest.mark.parametrize(
    "error, kind",
    [
        (_botocore(400, "ThrottlingException"), RATE_LIMITED), (_botocore(503, "SlowDown"), RATE_LIMITED),
        (_botocore(400, "ExpiredToken"), PERMANENT), (_botocore(400, "RequestTimeout"), TRANSIENT),
        (WithAttributesError(code=lambda: GrpcStatus.UNAVAILABLE), TRANSIENT),
        (WithAttributesError(code=lambda: GrpcStatus.NOT_FOUND), PERMANENT),
        (WithAttributesError(code=lambda: GrpcStatus.RESOURCE_EXHAUSTED), RATE_LIMITED),
        (WithAttributesError("not found", code=lambda: GrpcStatus.INTERNAL), UNKNOWN),
        (psycopg.errors.SerializationFailure("x"), TRANSIENT), (psycopg.errors.AdminShutdown("x"), TRANSIENT),
        (psycopg.errors.UniqueViolation("not found"), UNKNOWN),
    ],
)  # fmt: skip
def test_an_exception_is_classified_by_the_code_of_its_service_or_database(error: Exception, kind: FailureKind) -> None:
    assert classify(error) is kind


@pytest.mark.parametrize(
    "attributes",
    [
        {"code": True}, {"code": "404"}, {"code": 40_404}, {"code": -404}, {"status": "404"}, {"status": 404.0},
        {"response": "404"}, {"response": {"Error": 404}}, {"response": {"ResponseMetadata": {}}}, {"sqlstate": ""},
        {"code": lambda: 404}, {"code": "order_404"},
    ],
)  # fmt: skip
def test_an_attribute_that_is_not_a_status_is_ignored(attributes: dict[str, Any]) -> None:
    assert classify(WithAttributesError(**attributes)) is UNKNOWN


def test_an_exception_that_cannot_be_read_is_of_an_unknown_kind() -> None:
    assert classify(Unreadable("order 404")) is UNKNOWN
    assert classify(SystemExit(404)) is UNKNOWN


def test_an_order_with_the_number_404_is_retried_and_a_status_404_is_not(ledger: Ledger, clock: VirtualClock) -> None:
    @ledger.operation("ship")
    def ship(_run: Execution, order: int, *, gone: bool) -> None:
        raise WithAttributesError(f"order {order} cannot be packed", **({"status": 404} if gone else {}))

    number = ledger.submit(ship.call(404, gone=False)).job_id
    gone = ledger.submit(ship.call(7, gone=True)).job_id
    drain(ledger, until=clock.after(7 * 86_400))
    assert (ledger.job(number).state, ledger.job(number).attempts) == ("failed", 5)
    assert (ledger.job(gone).state, ledger.job(gone).attempts) == ("quarantined", 1)
