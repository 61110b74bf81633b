"""Redacts the message of an error before it is stored: removes secrets and stack traces, and shortens it to one line.

Invariants: the result is safe to store, log and print; both databases can store it; it contains no stack trace of
Python; equal texts give equal results. In doubtful cases more text is removed, not less.
"""

import re
from functools import cache

MESSAGE_MAX = 500
READ_MAX = 8 * MESSAGE_MAX  # the characters that are read: a message can be megabytes long
TRACE_READ_MAX = 8 * READ_MAX  # more for a stack trace, because its error is at the end
TRACE = "Traceback (most recent call last)"
LEFT_OUT = "(stack trace left out)"

_WORDS = r"passw(?:or)?d|pwd|passphrase|secret|token|api[_-]?key|authorization|(?:access|private)[_-]?key|credential"
_VALUE = r"""(?:(?:bearer|basic)\s+)?(?:"[^"]*(?:"|$)|'[^']*(?:'|$)|[^\s"',;&]+)"""
_SECRETS = (
    # The word may be any part of a name: password, PGPASSWORD, client_secret_v2, {'api_key': '…'}.
    rf"""(?i)((?:{_WORDS})[\w-]*)(["']?\s*[:=]\s*){_VALUE}""",
    r"(?i)()(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}",
    r"()(\w://[^\s:/@]*:)\S+(?=@)",
    r"()()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"()()\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*",
)
_BEGINS = r"(?:Exception Group )?Traceback\s*\(most\s+recent\s+call\s+last\):?"
_FRAME = r'File "[^"\n]*", line \d+'
_FRAMES = (
    # Under a frame there are lines of the source, and marks that point into them.
    rf"(?m){_FRAME}(?:, in \S+)?[ \t]*$(?:\n[ \t]{{4,}}[^\n]*)*",
    r"(?m)^  \[Previous line repeated \d+ more times?\]$",
    r"(?m)^[ \t]+at [^\n]*:\d+\)?[ \t]*$",  # of Java and JavaScript
)
_TREE = (r"(?m)^ *\+[-+]*-{8,}[^\n]*$|^ *[|+] ",)  # the lines that Python draws around a group of exceptions


def redacted(text: str) -> str:
    """Return the text as one line of at most MESSAGE_MAX characters, without stack traces and likely secrets."""
    if "\n" in text or "Traceback" in text:
        text = _untraced(text[:TRACE_READ_MAX])
    # A database cannot store halves of surrogate pairs, and a terminal should not print control characters.
    text = "".join(character if character.isprintable() else " " for character in text[:READ_MAX])
    for pattern in _compiled(_SECRETS):
        text = pattern.sub(r"\1\2***", text)
    text = " ".join(text.split()).replace(TRACE, LEFT_OUT)
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"


def _untraced(text: str) -> str:
    """Return a text with its stack traces replaced by the error at the end of the last one."""
    text = "".join(character if character.isprintable() or character == "\n" else " " for character in text)
    if "Exception Group Traceback" in text:
        text = _without(_TREE, text)
    [begins] = _compiled((_BEGINS,))
    found = list(begins.finditer(text))
    if found:
        text = f"{text[: found[0].start()]}\n{_end_of_trace(text[found[-1].end() :])}"
    return _without(_FRAMES, text)


def _end_of_trace(trace: str) -> str:
    """Return the text after the frames of a stack trace, or LEFT_OUT."""
    if "\\n" in trace.partition("\n")[0]:
        trace = trace.replace("\\n", "\n")  # it was written as the repr of a text
    first, _, rest = trace.partition("\n")
    if first.strip():  # all on one line: the end of its frames cannot be found
        return LEFT_OUT if re.search(_FRAME, first) else f"{LEFT_OUT}{trace}"
    lines = _without(_FRAMES, rest).split("\n")
    start = next((at for at, line in enumerate(lines) if line and not line[0].isspace()), None)
    return LEFT_OUT if start is None else "\n".join(lines[start:])


def _without(patterns: tuple[str, ...], text: str) -> str:
    for pattern in _compiled(patterns):
        text = pattern.sub("", text)
    return text


@cache
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Return the compiled patterns; they are compiled at their first use, because that is slow."""
    return tuple(map(re.compile, patterns))
