"""Notices that another process writes to a SQLite file.

A commit appends to the write-ahead log, and Linux reports that by inotify. The report comes before the commit is
durable and visible: a process that then begins to write waits for the end of the commit, and sees it.

Invariants: the watch opens no file, because closing one would drop the locks that SQLite has in this process; without
inotify it looks at the log's size and time every few milliseconds; a commit of this process is noticed too.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

from holdfast.store.watch import Watch

IN_MODIFY = 2


def log_watch(database: Path) -> Watch:
    c = ctypes.CDLL(None) if sys.platform == "linux" else None
    inotify = c.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if c else -1
    if inotify >= 0:
        return LogWatch(f"{database}-wal", c, inotify)
    from holdfast.store.sqlite.poll import PolledLog  # noqa: PLC0415 - most systems have inotify

    return PolledLog(Path(f"{database}-wal"))


class LogWatch(Watch):
    """Watches a write-ahead log by inotify."""

    def __init__(self, log: str, c: Any, inotify: int) -> None:
        self._log, self._c, self._inotify = log, c, inotify
        self.changed()

    def fileno(self) -> int | None:
        # Each time, because the log may be another file than before: the last process that closes a ledger removes it.
        self._c.inotify_add_watch(self._inotify, self._log.encode(), IN_MODIFY)
        return self._inotify

    def changed(self) -> bool:
        try:
            return bool(os.read(self._inotify, 1 << 16))
        except BlockingIOError:
            return False

    def close(self) -> None:
        if self._inotify >= 0:
            os.close(self._inotify)
            self._inotify = -1
