"""Ends a test server and removes its directories after the process that owns it has ended, also by SIGKILL.

Invariants:
- it runs in its own session; the end of its standard input shows that the owner has ended;
- it signals only the process whose id the owner sent last, and none if that was 0;
- it needs only the standard library, so that it starts quickly and works in a broken environment.

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
