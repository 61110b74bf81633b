"""Redacts the message of an error before it is stored: removes secrets and stack traces, and shortens it to one line.

Invariants: the result is safe to store, log and print; both databases can store it; it contains no stack trace of
Python; equal texts give equal results. In doubtful cases more text is removed, not less.
"""

import re
from functools import cache

from holdfast.core.digest import Json
from holdfast.core.secret_kinds import HIDDEN, names_secret, without_secrets

MESSAGE_MAX = 500
READ_MAX = 8 * MESSAGE_MAX  # the characters that are read: a message can be megabytes long
TRACE_READ_MAX = 8 * READ_MAX  # more for a stack trace, because its error is at the end
TRACE = "Traceback (most recent call last)"
LEFT_OUT = "(stack trace left out)"

_KNOWN_MAX = 4096  # characters that are remembered

_BEGINS = r"(?:Exception Group )?Traceback\s*\(most\s+recent\s+call\s+last\):?"
_FRAME = r'File "[^"\n]*", line \d+'
_FRAMES = (
    # Under a frame there are lines of the source, and marks that point into them.
    rf"(?m){_FRAME}(?:, in \S+)?[ \t]*$(?:\n[ \t]{{4,}}[^\n]*)*",
    r"(?m)^  \[Previous line repeated \d+ more times?\]$",
    r"(?m)^[ \t]+at [^\n]*:\d+\)?[ \t]*$",  # of Java and JavaScript
)
_TREE = (r"(?m)^ *\+[-+]*-{8,}[^\n]*$|^ *[|+] ",)  # the lines that Python draws around a group of exceptions


class _Printable(dict[int, int]):
    """Maps each character to itself, or to a space if it cannot be printed."""

    def __missing__(self, code: int) -> int:
        printed = code if chr(code).isprintable() else ord(" ")
        if len(self) < _KNOWN_MAX:
            self[code] = printed
        return printed


_PRINTABLE_LINES = _Printable({ord("\n"): ord("\n")})


def redacted(text: str) -> str:
    """Return the text as one line of at most MESSAGE_MAX characters, without stack traces and likely secrets."""
    if "\n" in text or "Traceback" in text:
        text = _untraced(_beginning(text, TRACE_READ_MAX))
    text = without_secrets(_printable_lines(_beginning(text, READ_MAX)))
    text = " ".join(text.split()).replace(TRACE, LEFT_OUT)
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"


def redacted_lines(text: str, length_max: int) -> str:
    """Return a text of several lines without likely secrets; of a longer one the end, which says most."""
    if len(text) > length_max:
        text = text[-length_max:].partition("\n")[2]
    return without_secrets(_printable_lines(text))[-length_max:]


def redacted_json(value: Json) -> Json:
    """Return a JSON value with likely secrets replaced by `***`, at any depth, by their names and by their kinds."""
    if isinstance(value, dict):
        return {name: HIDDEN if names_secret(name) else redacted_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [redacted_json(item) for item in value]
    return without_secrets(value) if isinstance(value, str) else value


def _beginning(text: str, length: int) -> str:
    """Return the first characters of a text, without a word that is cut: half of a secret could not be recognised."""
    if len(text) <= length:
        return text
    end = max(text.rfind(" ", 0, length), text.rfind("\n", 0, length))
    return text[: end if end > length // 2 else length]


def _printable_lines(text: str) -> str:
    # A database cannot store halves of surrogate pairs, and a terminal should not print control characters.
    return text if text.isprintable() else text.translate(_PRINTABLE_LINES)


def _untraced(text: str) -> str:
    """Return a text with its stack traces replaced by the error at the end of the last one."""
    text = _printable_lines(text)
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
