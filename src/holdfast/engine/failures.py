"""Kinds of failures.

Invariants: of a table's patterns the first that matches counts.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

Kind = TypeVar("Kind")


class WordTable(Generic[Kind]):
    """Classifies texts by the words in them: a pattern for each kind, in order of precedence."""

    def __init__(self, patterns: Mapping[Kind, str]) -> None:
        self._patterns = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in patterns.items())

    def kind_of(self, text: str) -> Kind | None:
        """Return the first kind whose pattern is found in the text, or None."""
        return next((kind for kind, words in self._patterns if words.search(text)), None)


class FailureKind(StrEnum):
    """What sort of failure it was."""

    TRANSIENT = "transient"
    RATE_LIMITED = "rate_limited"
    PERMANENT = "permanent"
    UNKNOWN = "unknown"


_KINDS = WordTable(
    {
        FailureKind.RATE_LIMITED: r"rate limit|too many requests|quota exceeded|\b429\b",
        FailureKind.PERMANENT: (
            r"permission denied|access denied|authentication failed|invalid credentials|not found|\b40[134]\b"
        ),
        FailureKind.TRANSIENT: r"time(d )?out|connection refused|temporar|unavailable|network|\b50[234]\b",
    }
)


def classify(error: BaseException) -> FailureKind:
    """Return the kind of a failure, by its type, then by the words that services use."""
    if isinstance(error, TimeoutError | ConnectionError | InterruptedError):
        return FailureKind.TRANSIENT
    if isinstance(error, PermissionError):
        return FailureKind.PERMANENT
    return _KINDS.kind_of(str(error)) or FailureKind.UNKNOWN
