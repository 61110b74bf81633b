"""Noticing that another process writes to a SQLite file.

A commit appends to the write-ahead log, and Linux reports that by inotify. The report comes before the commit is
durable and visible: who then begins to write waits for the commit's end, and sees it.

Invariants: the watch opens no file, because closing one would drop the locks that SQLite has in this process; without
inotify it looks at the log's size and time every few milliseconds; a commit of this process is noticed too.
"""

import ctypes
import os
import sys
from pathlib import Path

from holdfast.store.store import Watch

PERIOD_S = 0.003
IN_MODIFY = 2


class LogWatch(Watch):
    """Watches the write-ahead log of a SQLite file."""

    def __init__(self, database: Path) -> None:
        self._log = f"{database}-wal"
        self._c = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._inotify = self._c.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if self._c else -1
        self.period_s = None if self._inotify >= 0 else PERIOD_S
        self._seen: object = None
        self.changed()

    def fileno(self) -> int | None:
        if self._c is None or self._inotify < 0:
            return None
        # Each time, because the log may be another file than before: the last process that closes a ledger removes it.
        self._c.inotify_add_watch(self._inotify, self._log.encode(), IN_MODIFY)
        return self._inotify

    def changed(self) -> bool:
        if self._inotify >= 0:
            try:
                return bool(os.read(self._inotify, 1 << 16))
            except BlockingIOError:
                return False
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def close(self) -> None:
        if self._inotify >= 0:
            os.close(self._inotify)
            self._inotify = -1

    def _look(self) -> object:
        try:
            log = Path(self._log).stat()
        except OSError:
            return None
        return log.st_mtime_ns, log.st_size, log.st_ino
