"""What the children of the crash tests do: take or restore a snapshot, and die in the middle of it.

Invariants: a child dies by SIGKILL, right after the call that it was told to die in has returned; one that comes to its
end without dying exits with 0.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from holdfast.audit.files.restore import RestoreRequest, restore
from holdfast.audit.files.snapshot import create
from holdfast.store import open_store


def restore_and_die(file: str, url: str, point: str, nth: int) -> None:
    """Restore, and die after the nth call of a function, given as module:name."""
    with _deadly(point, nth):
        restore(Path(file), url, RestoreRequest(who="doomed", why="to see it die"))


def create_and_die(url: str, file: str, point: str, nth: int) -> None:
    """Take a snapshot, and die after the nth call of a function."""
    with _deadly(point, nth), open_store(url) as store:
        create(store, Path(file))


def _deadly(point: str, nth: int) -> Any:
    """Return a block in which the nth call of a function is the last thing that this process does."""
    module, _, path = point.partition(":")
    owner: Any = import_module(module)
    *holders, name = path.split(".")
    for holder in holders:
        owner = getattr(owner, holder)
    real: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        answer = real(*args, **kwargs)
        calls += 1
        if calls == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return mock.patch.object(owner, name, deadly)
