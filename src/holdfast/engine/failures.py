"""Failures: of which kind they are, and a code and a message that are safe to store.

Invariants: what comes out is safe to store, log and show, whatever the exception does when it is looked at; of a
table's patterns the first that matches counts.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.core.redaction import redacted

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OUR_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}|[A-Z][A-Z0-9_]{0,63}")
CODE_MAX = 64

Kind = TypeVar("Kind")


# ---------------------------------------------------------------------------------------------------------------------
# Kinds


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


# ---------------------------------------------------------------------------------------------------------------------
# Texts


def error_code(error: BaseException) -> str:
    """Return a short stable code for an exception: its own, or its class's name in snake case."""
    # The code of SystemExit is an exit status or a message.
    own = None if isinstance(error, SystemExit) else _attribute(error, "code")
    # Codes of governance are in capitals; the code of another exception may be anything.
    shape = _OUR_CODE if isinstance(error, HoldfastError) else _CODE
    if isinstance(own, str) and shape.fullmatch(own):
        return str(own)
    name = type(error).__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()[:CODE_MAX]


def short_code(reason: object) -> str:
    """Return a code that a caller gives, safe to store."""
    return redacted(str(reason))[:CODE_MAX]


def error_message(error: BaseException) -> str:
    """Return the class and the text of an exception, safe to store."""
    try:
        text = str(error)
    except BaseException as worse:  # noqa: BLE001 - it is the user's class
        text = f"its text cannot be read ({type(worse).__name__})"
    return redacted(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _attribute(error: BaseException, name: str) -> object:
    try:
        return getattr(error, name, None)
    except BaseException:  # noqa: BLE001 - the same
        return None
