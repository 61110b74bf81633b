"""What kind of failure an exception is: by its type and by its attributes.

Invariants: the text of an exception decides nothing; an exception that has a status is judged by that status alone. An
application may read words by a table of its own, whose first pattern that matches counts. Imported with the first
failure.
"""

import errno
import re
from collections.abc import Mapping
from typing import Generic, TypeGuard, TypeVar

from holdfast.engine.error_texts import attribute
from holdfast.engine.failures import FailureKind

Kind = TypeVar("Kind")

_READ_MAX = 4000  # characters of a text that are searched for words
_RATE_LIMITED, _PERMANENT, _TRANSIENT = FailureKind.RATE_LIMITED, FailureKind.PERMANENT, FailureKind.TRANSIENT
_HTTP = {
    **dict.fromkeys((429,), _RATE_LIMITED),
    **dict.fromkeys((401, 403, 404, 410), _PERMANENT),
    **dict.fromkeys((408, 425, 502, 503, 504), _TRANSIENT),
}
_GRPC = {
    **dict.fromkeys(("RESOURCE_EXHAUSTED",), _RATE_LIMITED),
    **dict.fromkeys(("PERMISSION_DENIED", "UNAUTHENTICATED", "NOT_FOUND", "UNIMPLEMENTED"), _PERMANENT),
    **dict.fromkeys(("UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED"), _TRANSIENT),
}
# Codes of AWS that come with the status 400; the status of every other code says enough.
_AWS = {
    **dict.fromkeys(
        (
            "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestLimitExceeded",
            "TooManyRequestsException", "ProvisionedThroughputExceededException", "SlowDown",
        ),
        _RATE_LIMITED,
    ),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "AccessDenied", "AccessDeniedException"), _PERMANENT),
    **dict.fromkeys(("RequestTimeout", "RequestTimeoutException"), _TRANSIENT),
}  # fmt: skip
_ERRNOS = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH})
_SQLSTATES = re.compile(r"08...|40001|40P01|53300|57P0[1-3]")  # lost connections, conflicts, a server that restarts


class WordTable(Generic[Kind]):
    """Classifies texts by the words in them: a pattern for each kind, in order of precedence."""

    def __init__(self, patterns: Mapping[Kind, str]) -> None:
        self._patterns = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in patterns.items())

    def kind_of(self, text: str) -> Kind | None:
        """Return the first kind whose pattern is found in the text, or None."""
        text = text[:_READ_MAX]
        return next((kind for kind, words in self._patterns if words.search(text)), None)


def kind_of(error: BaseException) -> FailureKind:
    """Return the kind of a failure: by the type, else by the status that it carries."""
    if isinstance(error, TimeoutError | ConnectionError | InterruptedError):
        return _TRANSIENT
    if isinstance(error, PermissionError):
        return _PERMANENT
    if isinstance(error, OSError) and (error.errno in _ERRNOS or _is_name_error(error)):
        return _TRANSIENT
    return _by_status(error) or FailureKind.UNKNOWN


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status that an exception carries, as the usual clients set it; None if there is none."""
    response = attribute(error, "response")
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    found = (
        attribute(response, "status_code"),  # requests, httpx
        attribute(response, "status"),
        metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None,  # botocore
        attribute(error, "status_code"),  # azure, openai
        attribute(error, "status"),  # aiohttp, urllib
        attribute(error, "http_status"),
        None if isinstance(error, SystemExit) else attribute(error, "code"),  # urllib, google.api_core
    )
    return next((one for one in found if _is_status(one)), None)


def _by_status(error: BaseException) -> FailureKind | None:
    """Return the kind that the status of a service or of a database means; None if the exception has no status."""
    response = attribute(error, "response")
    named = response.get("Error") if isinstance(response, dict) else None
    if isinstance(named, dict) and isinstance(code := named.get("Code"), str) and code in _AWS:
        return _AWS[code]
    if (status := http_status(error)) is not None:
        return _HTTP.get(status, FailureKind.UNKNOWN)
    called = attribute(error, "code")
    answered = called() if callable(called) else None  # grpc: a method that returns a member of StatusCode
    if isinstance(name := attribute(answered, "name"), str) and name.isupper():
        return _GRPC.get(name, FailureKind.UNKNOWN)
    sqlstate = attribute(error, "sqlstate")
    if isinstance(sqlstate, str) and sqlstate:
        return _TRANSIENT if _SQLSTATES.fullmatch(sqlstate) else FailureKind.UNKNOWN
    return None


def _is_status(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599


def _is_name_error(error: OSError) -> bool:
    """Return whether a name server did not answer: the name may exist."""
    from socket import EAI_AGAIN, gaierror  # noqa: PLC0415 - `explain` needs none of it

    return isinstance(error, gaierror) and error.errno == EAI_AGAIN
