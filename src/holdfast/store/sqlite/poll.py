"""Notices that another process writes to a SQLite file, on a system without inotify.

Invariants: the watch opens no file, because closing one would drop the locks that SQLite has in this process.
"""

from pathlib import Path

from holdfast.store.watch import Watch

PERIOD_S = 0.003


class PolledLog(Watch):
    """Looks at the size and the time of a write-ahead log every few milliseconds."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.period_s = PERIOD_S
        self._seen = self._look()

    def fileno(self) -> int | None:
        return None

    def changed(self) -> bool:
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def close(self) -> None:
        """Nothing is open."""

    def _look(self) -> object:
        try:
            log = self._log.stat()
        except OSError:
            return None
        return log.st_mtime_ns, log.st_size, log.st_ino
