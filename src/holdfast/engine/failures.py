"""Kinds of failures, and the judge that an operation uses unless it has its own."""

from enum import StrEnum


class FailureKind(StrEnum):
    """What sort of failure it was."""

    TRANSIENT = "transient"
    RATE_LIMITED = "rate_limited"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


def classify(error: BaseException) -> FailureKind:
    """Return the kind of a failure: by its type, or by the status that it carries."""
    from holdfast.engine.classification import kind_of  # noqa: PLC0415 - most attempts do not fail

    return kind_of(error)
