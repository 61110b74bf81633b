"""Making an error fit to be kept: a short code, and a message that has lost what `core.redaction` takes out.

Invariants: what comes out is safe to store, log and show, whatever the exception does when it is looked at.
"""

import re

from holdfast.core.errors import HoldfastError
from holdfast.core.redaction import MESSAGE_MAX, redacted

__all__ = ["CODE_MAX", "MESSAGE_MAX", "error_code", "error_message", "redacted", "short_code"]

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OUR_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}|[A-Z][A-Z0-9_]{0,63}")
CODE_MAX = 64


def error_code(error: BaseException) -> str:
    """Return a short stable code for an exception: its own, or its class's name in snake case."""
    # What SystemExit calls its code is an exit status, or a message.
    own = None if isinstance(error, SystemExit) else _looked_at(error, "code")
    # The codes of governance are written in capitals; another's may be anything.
    shape = _OUR_CODE if isinstance(error, HoldfastError) else _CODE
    if isinstance(own, str) and shape.fullmatch(own):
        return str(own)
    name = type(error).__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()[:CODE_MAX]


def short_code(reason: object) -> str:
    """Return what somebody gives as a code, fit to be kept."""
    return redacted(str(reason))[:CODE_MAX]


def error_message(error: BaseException) -> str:
    """Return what an exception says, fit to be kept."""
    try:
        text = str(error)
    except BaseException as worse:  # noqa: BLE001 - it is the user's class
        text = f"its text could not be had ({type(worse).__name__})"
    return redacted(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _looked_at(error: BaseException, name: str) -> object:
    try:
        return getattr(error, name, None)
    except BaseException:  # noqa: BLE001 - the same
        return None
