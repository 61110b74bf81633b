"""A code and a message for an exception, safe to store, log and show.

Invariants: whatever the exception does when it is looked at, nothing here raises; secrets are taken out.
"""

import re

from holdfast.core.errors import HoldfastError
from holdfast.core.redaction import redacted

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OUR_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}|[A-Z][A-Z0-9_]{0,63}")
CODE_MAX = 64


def error_code(error: BaseException) -> str:
    """Return a short stable code for an exception: its own, or its class's name in snake case."""
    # The code of SystemExit is an exit status or a message.
    own = None if isinstance(error, SystemExit) else attribute(error, "code")
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


def attribute(value: object, name: str) -> object:
    """Return an attribute of an exception, or of what it holds; None if there is none or it cannot be read."""
    try:
        return getattr(value, name, None)
    except BaseException:  # noqa: BLE001 - it is the user's class
        return None
