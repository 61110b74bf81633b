"""Making an error fit to be kept: no secrets, no stack trace, no more than a few lines.

Invariants: what comes out is safe to store, log and show; the same text comes out the same.
"""

import re

MESSAGE_MAX = 500

_SECRETS = (
    re.compile(r"(?i)\b(password|passwd|pwd|secret|token|api[_-]?key|authorization|access[_-]?key|credential)s?"
               r"(\"?\s*[:=]\s*\"?)(?:bearer\s+|basic\s+)?[^\s\"',;&]+"),
    re.compile(r"(?i)()(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"()(\w+://[^\s:/@]+:)[^\s@]+(?=@)"),
    re.compile(r"()()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"()()\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"),
)  # fmt: skip


def redacted(text: str) -> str:
    """Return the text with what looks like a secret taken out, and cut to size."""
    for pattern in _SECRETS:
        text = pattern.sub(r"\1\2***", text)
    text = " ".join(text.split())
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"


def error_code(error: BaseException) -> str:
    """Return a short stable code for an exception: its own, or its class's name in snake case."""
    own = getattr(error, "code", None)
    if isinstance(own, str) and re.fullmatch(r"[a-z][a-z0-9_]{0,63}", own):
        return own
    name = type(error).__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()[:64]


def error_message(error: BaseException) -> str:
    """Return what an exception says, fit to be kept."""
    return redacted(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
