"""Ends a test server and removes its directories when the process that owns it is gone, however it went.

Invariants:
- it runs beside its owner, in its own session, and learns of the owner's death from the end of its input;
- it signals only the process whose id the owner told it last, and nothing when that was 0;
- it needs the standard library alone, so that it starts quickly and outlives a broken environment.

Usage: orphan_guard.py DIRECTORY..., with lines on standard input: a process id, 0, or `end`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable


def main(directories: list[str], lines: Iterable[str]) -> None:
    pid = 0
    for line in lines:
        if line.strip() == "end":
            break
        pid = int(line)
    if pid:
        _end(pid)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def _end(pid: int) -> None:
    # SIGQUIT is PostgreSQL's immediate shutdown: it ends its backends and frees its shared memory.
    for signum, wait_s in ((signal.SIGQUIT, 10.0), (signal.SIGKILL, 2.0)):
        deadline = time.monotonic() + wait_s
        try:
            os.kill(pid, signum)
            while time.monotonic() < deadline:
                os.kill(pid, 0)
                time.sleep(0.05)
        except ProcessLookupError:
            return


if __name__ == "__main__":
    main(sys.argv[1:], sys.stdin)
