"""A separate Python process that a test starts, lets wait for its start, and ends by its id.

Invariants: the process runs `python -m MODULE`, prints `ready` when it can begin, and begins after it has read a line;
a child that a test leaves is killed. Children that are many, or run roles, come from `forkserver`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
READY = "ready"


def wait_for_start() -> None:
    """In the child: print that it is ready, and wait until the test lets it begin."""
    print(READY, flush=True)
    sys.stdin.readline()


class Child:
    """The test's handle of such a process."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def says(self) -> str:
        """Return the next line that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def output(self, timeout_s: float = 60) -> str:
        """Return what else it prints, after it has ended without an error."""
        out, errors = self._process.communicate(timeout=timeout_s)
        assert self._process.returncode == 0, errors
        return out

    def kill(self) -> None:
        """Send SIGKILL to the process, if it still runs, and close the pipes."""
        self._process.kill()
        self._process.communicate()
