"""What a text must lose before it is kept as the message of an error: secrets, stack traces, all but a short line.

Invariants: what comes out is safe to store, log and show; both databases can keep it; it has no stack trace of Python
in it; the same text comes out the same. When in doubt, more is taken out rather than less.
"""

import re
from functools import cache

MESSAGE_MAX = 500
READ_MAX = 8 * MESSAGE_MAX  # no more than this is looked at: a message can be megabytes long
TRACE_READ_MAX = 8 * READ_MAX  # a stack trace says at its end what it is about
TRACE = "Traceback (most recent call last)"
LEFT_OUT = "(stack trace left out)"

_WORDS = r"passw(?:or)?d|pwd|passphrase|secret|token|api[_-]?key|authorization|(?:access|private)[_-]?key|credential"
_VALUE = r"""(?:(?:bearer|basic)\s+)?(?:"[^"]*(?:"|$)|'[^']*(?:'|$)|[^\s"',;&]+)"""
_SECRETS = (
    # Wherever the word stands in a name: password, PGPASSWORD, client_secret_v2, {'api_key': '…'}.
    rf"""(?i)((?:{_WORDS})[\w-]*)(["']?\s*[:=]\s*){_VALUE}""",
    r"(?i)()(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}",
    r"()(\w://[^\s:/@]*:)\S+(?=@)",
    r"()()\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"()()\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*",
)
_BEGINS = r"(?:Exception Group )?Traceback\s*\(most\s+recent\s+call\s+last\):?"
_FRAME = r'File "[^"\n]*", line \d+'
_FRAMES = (
    # A frame has lines of the source, and marks of what is wrong there, under it.
    rf"(?m){_FRAME}(?:, in \S+)?[ \t]*$(?:\n[ \t]{{4,}}[^\n]*)*",
    r"(?m)^  \[Previous line repeated \d+ more times?\]$",
    r"(?m)^[ \t]+at [^\n]*:\d+\)?[ \t]*$",  # of Java and JavaScript
)
_TREE = (r"(?m)^ *\+[-+]*-{8,}[^\n]*$|^ *[|+] ",)  # that a group of exceptions is drawn as


def redacted(text: str) -> str:
    """Return the text on one line, with stack traces and what looks like a secret taken out, and cut to size."""
    if "\n" in text or "Traceback" in text:
        text = _untraced(text[:TRACE_READ_MAX])
    # Control characters and halves of surrogate pairs are what a database cannot keep, or a terminal should not show.
    text = "".join(character if character.isprintable() else " " for character in text[:READ_MAX])
    for pattern in _compiled(_SECRETS):
        text = pattern.sub(r"\1\2***", text)
    text = " ".join(text.split()).replace(TRACE, LEFT_OUT)
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"


def _untraced(text: str) -> str:
    """Return a text with its stack traces reduced to what the last of them says at its end."""
    text = "".join(character if character.isprintable() or character == "\n" else " " for character in text)
    if "Exception Group Traceback" in text:
        text = _without(_TREE, text)
    [begins] = _compiled((_BEGINS,))
    found = list(begins.finditer(text))
    if found:
        text = f"{text[: found[0].start()]}\n{_end_of_trace(text[found[-1].end() :])}"
    return _without(_FRAMES, text)


def _end_of_trace(trace: str) -> str:
    """Return what a stack trace says after its frames, or that it was left out."""
    if "\\n" in trace.partition("\n")[0]:
        trace = trace.replace("\\n", "\n")  # it was written as the repr of a text
    first, _, rest = trace.partition("\n")
    if first.strip():  # all on one line: where its frames end cannot be told
        return LEFT_OUT if re.search(_FRAME, first) else f"{LEFT_OUT}{trace}"
    lines = _without(_FRAMES, rest).split("\n")
    told = next((at for at, line in enumerate(lines) if line and not line[0].isspace()), None)
    return LEFT_OUT if told is None else "\n".join(lines[told:])


def _without(patterns: tuple[str, ...], text: str) -> str:
    for pattern in _compiled(patterns):
        text = pattern.sub("", text)
    return text


@cache
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Return patterns compiled, which takes a moment, at their first use."""
    return tuple(map(re.compile, patterns))
