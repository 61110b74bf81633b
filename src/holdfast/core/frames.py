"""Where a traceback says that a handler failed.

Invariants: nothing here raises; of a text without a frame the answer is None.
"""

import re
from typing import NamedTuple

_FRAME = re.compile(r'^  File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>\S+)$', re.MULTILINE)
# Frames of Python itself and of installed packages: the line of the application that led there says more.
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|^<")


class Where(NamedTuple):
    """A line of a source file."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


def where(traceback: str | None) -> Where | None:
    """Return the last frame of the application in a traceback; of a library if there is no other; None without one."""
    frames = [Where(found["file"], int(found["line"]), found["function"]) for found in _FRAME.finditer(traceback or "")]
    own = [frame for frame in frames if not _LIBRARY.search(frame.file)]
    return next(reversed(own or frames), None)
