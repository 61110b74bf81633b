"""Why a job is in quarantine: a small set of reasons for the many codes of handlers, users and the ledger.

Invariants: a reason is derived from the stored job and from what applications have declared; it is not stored; every
job has exactly one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from holdfast.core.decide import CANCELLED, DEADLINE_PASSED, LEASE_EXPIRED
from holdfast.core.records import Job
from holdfast.engine.classification import WordTable


class Reason(StrEnum):
    """Why a job is in quarantine, independent of its code."""

    PARSE_ERROR = "parse_error"
    PERMISSION_DENIED = "permission_denied"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    CONNECTOR_ERROR = "connector_error"
    TIMEOUT = "timeout"
    INVALID_STATE = "invalid_state"
    DEPENDENCY_FAILURE = "dependency_failure"
    RATE_LIMITED = "rate_limited"
    UNKNOWN = "unknown"
    # Reasons that the ledger itself gives.
    CANCELLED = CANCELLED
    DEADLINE_PASSED = DEADLINE_PASSED
    LEASE_EXPIRED = LEASE_EXPIRED
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    GOVERNANCE_HARD_FAIL = "governance_hard_fail"
    GOVERNANCE_HOLD = "governance_hold"
    SUPERSEDED = "superseded"  # a newer job replaced it: no action is needed


# The first match decides. A code is matched as words: `json_decode_error` as `json decode error`.
_WORDS = WordTable(
    {
        Reason.RATE_LIMITED: r"rate.?limit|too many requests|quota|throttl",
        Reason.PERMISSION_DENIED: r"permission|access denied|forbidden|unauthori[sz]ed|authenticat|credentials",
        Reason.TIMEOUT: r"timed? ?out|deadline exceeded",
        Reason.RESOURCE_EXHAUSTED: (
            r"memory|no space left|disk (?:is )?full|resources? exhausted|too many open files|too large|too deep|enospc"
        ),
        Reason.DEPENDENCY_FAILURE: r"dependenc|upstream|unavailable|no module|import error|module not found",
        Reason.PARSE_ERROR: (
            r"pars(?:e|ing)|decode|syntax|malformed|not json|schema|validation|arguments invalid"
            r"|invalid (?:json|xml|format)"
        ),
        Reason.CONNECTOR_ERROR: (
            r"connect|network|\bio error|\bos error|socket|\bssl\b|\bdns\b|broken pipe|unreachable|missing object"
            r"|not found|no such file"
        ),
        Reason.INVALID_STATE: r"\bstate\b|conflict|integrity|precondition|invariant|\bbroken\b|\blost\b",
    }
)
# A number in a code is a status, such as `http_404`. A number in a message may be anything: an order, a line, a port.
_STATUSES = WordTable(
    {
        Reason.RATE_LIMITED: r"\b429\b",
        Reason.PERMISSION_DENIED: r"\b40[13]\b",
        Reason.DEPENDENCY_FAILURE: r"\b50[234]\b",
        Reason.CONNECTOR_ERROR: r"\b404\b",
    }
)
_KNOWN = {reason.value: reason for reason in Reason}


def declare(codes: Mapping[str, Reason]) -> None:
    """Map codes of an application to reasons. Needed where the words of a code match no reason, or the wrong one."""
    _KNOWN.update(codes)


def reason_of(quarantine_code: str | None, error_code: str | None = None, message: str | None = None) -> Reason:
    """Return the reason, from the quarantine code, else from the code of the last error, else from its message."""
    codes = [code for code in (quarantine_code, error_code) if code and code != Reason.UNKNOWN]
    for code in codes:
        if code in _KNOWN:
            return _KNOWN[code]
    for text in (code.replace("_", " ") for code in codes):
        if reason := _STATUSES.kind_of(text) or _WORDS.kind_of(text):
            return reason
    return _WORDS.kind_of(message or "") or Reason.UNKNOWN


def reason_for(job: Job) -> Reason:
    """Return the reason why a job is in quarantine."""
    return reason_of(job.quarantine_code, job.last_error_code, job.last_error_message)
