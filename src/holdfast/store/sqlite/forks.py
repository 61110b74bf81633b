"""Closes the SQLite files of a process while it forks.

SQLite records its locks in memory, for each file. A forked child inherits this record but not the locks. If it opened
the file again it would hold no lock that other processes can see: when the last of them closes the file, it removes the
log that the child goes on writing to, and work that the child has acknowledged is lost.

Invariants: while a process forks its stores have no connection open, so that a child begins with an empty record; a
file that is open all the same, because a transaction did not end or because the connection is the user's own, is
refused to the child as long as it stays open there.
"""

import os
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.store.pool import Pool

WAIT_S = 2.0  # how long a fork waits for transactions to end

_pools: weakref.WeakSet[Pool[Any]] = weakref.WeakSet()
_one_fork_at_a_time = threading.Lock()
_held: list[Pool[Any]] = []
_inherited: dict[int, os.stat_result] = {}  # by descriptor: the files that were open when this process was forked


def close_for_forks(pool: Pool[Any]) -> None:
    """Close a pool's connections whenever this process forks."""
    _pools.add(pool)


def refuse_inherited(path: Path) -> None:
    """Raise if a file was open when this process was forked, and still is."""
    if _inherited:
        from holdfast.store.sqlite.inherited import refuse  # noqa: PLC0415 - most processes are not forked children

        refuse(path, _inherited)


def _before() -> None:
    _one_fork_at_a_time.acquire()
    for pool in list(_pools):
        _held.append(pool)
        pool.hold(WAIT_S)


def _after_in_parent() -> None:
    while _held:
        _held.pop().release()
    _one_fork_at_a_time.release()


def _after_in_child() -> None:
    while _held:
        _held.pop().reset()
    _one_fork_at_a_time.release()
    _inherited.clear()
    for number in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        with suppress(OSError):  # the listing's own
            _inherited[number] = os.fstat(number)


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
