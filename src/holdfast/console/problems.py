"""Errors as HTTP answers: the status of each kind, and the same code, words and next step as the command prints.

Invariants: an answer contains no stack trace and no text of an unexpected error; every refusal has a code and a next
step.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

import msgspec

from holdfast.core.errors import (
    ApprovalError,
    AuthorityError,
    CommitUnknownError,
    GovernanceError,
    HoldfastError,
    IdempotencyConflictError,
    InputError,
    JobNotFoundError,
    PayloadTooLargeError,
    QueueFullError,
    RecordNotFoundError,
    RefusedError,
    ResultExpiredError,
    StoreError,
)

logger = logging.getLogger("holdfast")

PROBLEM_JSON = "application/problem+json"
STATE = "in_state"  # the parameter `state`, which is a reserved name of Litestar
# The first class that fits decides.
_STATUSES: tuple[tuple[type[HoldfastError], HTTPStatus], ...] = (
    (PayloadTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (IdempotencyConflictError, HTTPStatus.CONFLICT),
    (InputError, HTTPStatus.BAD_REQUEST),
    (JobNotFoundError, HTTPStatus.NOT_FOUND),
    (RecordNotFoundError, HTTPStatus.NOT_FOUND),
    (ResultExpiredError, HTTPStatus.GONE),
    (QueueFullError, HTTPStatus.TOO_MANY_REQUESTS),
    (AuthorityError, HTTPStatus.FORBIDDEN),
    (ApprovalError, HTTPStatus.FORBIDDEN),
    (GovernanceError, HTTPStatus.CONFLICT),
    (RefusedError, HTTPStatus.CONFLICT),
    (CommitUnknownError, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
)
_BY_CODE = {
    "not_logged_in": HTTPStatus.UNAUTHORIZED,
    "login_failed": HTTPStatus.UNAUTHORIZED,
    "too_many_logins": HTTPStatus.TOO_MANY_REQUESTS,
    "permission_denied": HTTPStatus.FORBIDDEN,
    "token_scope": HTTPStatus.FORBIDDEN,
    "origin_refused": HTTPStatus.FORBIDDEN,
    "host_refused": HTTPStatus.FORBIDDEN,
    "csrf_refused": HTTPStatus.FORBIDDEN,
    "read_only": HTTPStatus.FORBIDDEN,
    "password_needed": HTTPStatus.FORBIDDEN,
    "too_slow": HTTPStatus.REQUEST_TIMEOUT,
    "content_type_refused": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "streams_exhausted": HTTPStatus.SERVICE_UNAVAILABLE,
}
_API = "The addresses of the API and their methods: /api/v1/openapi.json"
_WORDS = {
    HTTPStatus.NOT_FOUND: ("not_found", "There is nothing at this address.", "Open the overview and search there."),
    HTTPStatus.METHOD_NOT_ALLOWED: ("method_not_allowed", "This address does not take this method.", _API),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ("body_too_large", "The body of the request is too large.", "Send less."),
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: ("content_type_refused", "The body has another type.", "Send JSON."),
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error as RFC 9457 describes it, with the code, the next step and the context of Holdfast."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    next_step: str
    context: dict[str, object] = {}


def problem_of(error: HoldfastError) -> Problem:
    status = _BY_CODE.get(error.code) or next(
        (status for kind, status in _STATUSES if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR
    )
    value = error.as_dict()
    context = value["context"]
    known = {name: item for name, item in context.items() if name != "next_step"} if isinstance(context, dict) else {}
    return _problem(status, error.code, error.message, error.hint, known)


def problem_of_status(status: int, faults: object = None) -> Problem:
    """Return a refusal of the web framework as a problem: a wrong address, method or parameter."""
    known = HTTPStatus(status)
    named = _named(faults) if isinstance(faults, list) else None
    code, message, step = _WORDS.get(
        known, ("bad_input", _first(named or []), "Correct the request: /api/v1/openapi.json")
    )
    return _problem(known, code, message, step, {} if named is None else {"faults": named})


def _named(faults: list[object]) -> list[object]:
    """Return the faults of parameters under the names that requests have."""
    return [{**one, "key": "state"} if isinstance(one, dict) and one.get("key") == STATE else one for one in faults]


def _first(faults: list[object]) -> str:
    """Return the first fault in words: the parameter, or the body, and what is wrong with it."""
    one = faults[0] if faults and isinstance(faults[0], dict) else {}
    where = {"query": one.get("key"), "body": "the body"}.get(str(one.get("source")), one.get("key"))
    return f"{where}: {one['message']}." if where and one.get("message") else "The request is not valid."


def problem_of_unknown(error: Exception) -> Problem:
    """Return an unexpected error as a problem; its text is only logged, because it may contain a secret."""
    logger.error("unexpected error in the console", exc_info=error)
    return _problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal",
        f"Unexpected {type(error).__name__}: a bug in Holdfast or in its environment.",
        "See the log of the console, and report the bug.",
        {},
    )


def _problem(status: HTTPStatus, code: str, detail: str, next_step: str, context: dict[str, object]) -> Problem:
    return Problem(
        type=f"urn:holdfast:error:{code}",
        title=status.phrase,
        status=status,
        detail=detail,
        code=code,
        next_step=next_step,
        context=context,
    )
