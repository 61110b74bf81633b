"""What the children of the crash tests do: take or restore a snapshot, and die in the middle of it.

Invariants: a child dies by SIGKILL, right after the call that it must die in has returned; one that comes to its
end without dying exits with 0.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.audit.files.restore import RestoreRequest, restore
from holdfast.audit.files.snapshot import create
from holdfast.store import open_store
from tests.support.trap import Trap


def restore_and_die(file: str, url: str, point: str, nth: int) -> None:
    """Restore, and die after the nth call of a function, given as module:name."""
    _deadly(point, nth)
    restore(Path(file), url, RestoreRequest(who="doomed", why="to see it die"))


def create_and_die(url: str, file: str, point: str, nth: int) -> None:
    """Take a snapshot, and die after the nth call of a function."""
    _deadly(point, nth)
    with open_store(url) as store:
        create(store, Path(file))


def _deadly(point: str, nth: int) -> None:
    """Make the nth call of a function, given as module:name, the last thing that this process does."""
    module, _, path = point.partition(":")
    owner: Any = import_module(module)
    *holders, name = path.split(".")
    for holder in holders:
        owner = getattr(owner, holder)
    Trap(nth, armed=True).watch_calls(owner, name, before=False)
