"""Making an error fit to be kept: no secrets, no stack trace, no more than a few lines.

Invariants: what comes out is safe to store, log and show, whatever the exception does when it is looked at; both
databases can keep it; the same text comes out the same. When in doubt, more is taken out rather than less.
"""

import re

from holdfast.core.errors import HoldfastError

_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OUR_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}|[A-Z][A-Z0-9_]{0,63}")
MESSAGE_MAX = 500
READ_MAX = 8 * MESSAGE_MAX  # no more than this is looked at: a message can be megabytes long

_WORDS = r"passw(?:or)?d|pwd|passphrase|secret|token|api[_-]?key|authorization|(?:access|private)[_-]?key|credential"
_VALUE = r"""(?:(?:bearer|basic)\s+)?(?:"[^"]*(?:"|$)|'[^']*(?:'|$)|[^\s"',;&]+)"""
_SECRETS = (
    # Wherever the word stands in a name: password, PGPASSWORD, client_secret_v2, {'api_key': '…'}.
    re.compile(rf"""(?i)((?:{_WORDS})[\w-]*)(["']?\s*[:=]\s*){_VALUE}"""),
    re.compile(r"(?i)()(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"()(\w://[^\s:/@]*:)\S+(?=@)"),
    re.compile(r"()()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"()()\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"),
)


def redacted(text: str) -> str:
    """Return the text on one line, with what looks like a secret taken out, and cut to size."""
    # Control characters and halves of surrogate pairs are what a database cannot keep, or a terminal should not show.
    text = "".join(character if character.isprintable() else " " for character in text[:READ_MAX])
    for pattern in _SECRETS:
        text = pattern.sub(r"\1\2***", text)
    text = " ".join(text.split())
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"


def error_code(error: BaseException) -> str:
    """Return a short stable code for an exception: its own, or its class's name in snake case."""
    # What SystemExit calls its code is an exit status, or a message.
    own = None if isinstance(error, SystemExit) else _looked_at(error, "code")
    # The codes of governance are written in capitals; another's may be anything.
    shape = _OUR_CODE if isinstance(error, HoldfastError) else _CODE
    if isinstance(own, str) and shape.fullmatch(own):
        return str(own)
    name = type(error).__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()[:64]


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
