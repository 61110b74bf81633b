"""Reports how the files of a ledger differ from those that were opened.

Invariants: nothing is changed on disk; a second name that a new ledger has for a moment is waited for when it is
opened; a log that grows is only warned of.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import LedgerFileError
from holdfast.store.sqlite.holders import readers

if TYPE_CHECKING:
    from holdfast.store.sqlite.identity import LedgerFiles

WAIT_S, POLL_S = 1.0, 0.005
logger = logging.getLogger("holdfast")

_RESTART = (
    "Stop every process that uses this ledger, put the right file at the path, and start them again."
    " Jobs acknowledged before this error are in the file that was open."
    " To copy a ledger in use: `holdfast snapshot create FILE`."
)
_ONE_NAME = "Remove the other name (to find it: `find / -xdev -samefile {path}`), or use a symbolic link."
_LOG = (
    "Restart this process, then run `holdfast check`. Do not delete or move the -wal file of a ledger in use."
    " To copy a ledger: `holdfast snapshot create FILE`."
)


def require_unchanged(files: LedgerFiles) -> None:
    """Raise LedgerFileError and mark the files as changed, or warn of a log that has grown."""
    _refuse(files, _of_file(files) or _of_log(files))
    _warn_of_growth(files)


def require_file(files: LedgerFiles) -> None:
    """Raise LedgerFileError unless the path names the file that was open, if there was one, and no other path does."""
    deadline = time.monotonic() + WAIT_S
    while (found := _of_file(files)) is not None and found[0] == "hard_linked" and time.monotonic() < deadline:
        time.sleep(POLL_S)  # a ledger that is being created has two names for a moment
    _refuse(files, found)


def _refuse(files: LedgerFiles, found: tuple[str, str, str] | None) -> None:
    files.changed = found is not None
    if found is not None:
        change, message, next_step = found
        raise LedgerFileError(message, next_step=next_step, context={"path": files.path, "change": change})


def _of_file(files: LedgerFiles) -> tuple[str, str, str] | None:
    """Return what has changed about the file, as (change, message, next step); None if nothing has."""
    file = _status(files.path)
    if file is None:
        return "deleted", f"{files.path} was deleted or renamed while it was open", _RESTART
    if files.seen is not None and (file.st_dev, file.st_ino) != files.seen[:2]:
        return "replaced", f"{files.path} is another file than the one that was opened", _RESTART
    if file.st_nlink != 1:
        message = f"{files.path} has {file.st_nlink} names (hard links), and SQLite has a separate log for each name"
        return "hard_linked", message, _ONE_NAME.format(path=files.path)
    return None


def _of_log(files: LedgerFiles) -> tuple[str, str, str] | None:
    log = _status(files.log)
    if log is None:
        return "log_deleted", f"{files.log} was deleted while the ledger was open", _LOG
    if files.seen is None or (log.st_dev, log.st_ino) != files.seen[2:4]:
        return "log_replaced", f"{files.log} is another file than the one that was opened", _LOG
    if log.st_nlink != 1:
        return "hard_linked", f"{files.log} has {log.st_nlink} names (hard links)", _ONE_NAME.format(path=files.log)
    return None


def _status(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except FileNotFoundError:
        return None


def _warn_of_growth(files: LedgerFiles) -> None:
    log = _status(files.log)
    if log is None or log.st_size <= files.log_bytes_max:
        return
    files.log_bytes_max = 2 * log.st_size  # the next warning comes after the log has doubled
    open_in = ", ".join(map(str, readers(files.path))) or "unknown"
    logger.warning(
        "%s has grown to %d MiB: a reader stays open, so it cannot be written back. Processes that are reading: %s."
        " End that transaction or process; the log then shrinks by itself.",
        files.log, log.st_size >> 20, open_in,
    )  # fmt: skip
