"""What a driver implements, and what its worker processes share; it imports little: their memory is measured.

Invariants: a handler calls `enter` first and `leave` last; a process writes one file of its own, and one write adds one
record, so no lock is needed; a worker process ends when the driver that started it ends.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

WORK = "--work"
FAILS = "!"  # the first character of the note of a job that fails on purpose
POLL_SECONDS = 0.005  # for peers that can only poll
EFFECTS_TABLE = "CREATE TABLE effects (job TEXT NOT NULL, amount INTEGER NOT NULL)"
RECORD_BYTES = {"drain": 1, "mixed": 16, "idle": 0}

T = TypeVar("T")
Submit = Callable[[dict[str, Any]], Any]


class DeliberateError(Exception):
    """The handler fails on purpose."""


class Handler:
    """Counts what the handlers of one worker process did, for the driver.

    The mode is `drain` (count), `mixed` (which job ended when) or `idle` (print when the handler started).
    """

    def __init__(self, text: str) -> None:
        config: dict[str, Any] = json.loads(text)
        self.where: str = config["where"]
        self.setting: int | None = config["setting"]
        self.processes: int = config["processes"]
        self.effect: bool = config["effect"]
        self.mode: str = config["mode"]
        self.by_commit = False  # the driver itself calls `ended` when the completion is durable
        self._folder = Path(config["folder"])
        self._begun = self.mode != "drain"
        self._file = -1
        self._pid = 0

    def ready(self) -> None:
        """Say that this worker can start, and wait until all of them can."""
        threading.Thread(target=_end_with_driver, daemon=True).start()
        (self._folder / f"ready-{os.getpid()}").touch()
        while not (self._folder / "gate").exists():
            time.sleep(0.001)

    def enter(self) -> None:
        """Note that a handler starts."""
        if self.mode == "idle":
            os.write(1, b"%d\n" % time.monotonic_ns())
        elif not self._begun:
            self._begun = True
            with suppress(FileExistsError):  # another process was first
                (self._folder / "first").open("x").write(str(time.monotonic_ns()))

    def leave(self, payload: dict[str, Any]) -> None:
        """Note that a handler ends, and raise if its job is one that fails on purpose."""
        if not self.by_commit:
            self.ended(payload["amount"])
        if payload["note"].startswith(FAILS):
            raise DeliberateError

    def ended(self, number: int) -> None:
        """Note that a job ended; in a mixed load its number says which."""
        if self._pid != os.getpid():  # the pools of some peers fork
            self._file = os.open(self._folder / f"done-{os.getpid()}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            self._pid = os.getpid()  # after the file: other threads look at it
        if self.mode == "drain":
            os.write(self._file, b".")
        elif self.mode == "mixed":
            os.write(self._file, number.to_bytes(8, "little") + time.monotonic_ns().to_bytes(8, "little"))


def _end_with_driver() -> None:
    while os.read(0, 1):  # not sys.stdin: a process that is forked meanwhile would inherit its lock
        pass
    os._exit(0)


class Peer:
    """One system: what its driver implements."""

    name = ""
    distribution = ""  # of the package, if it is not the name
    durability = ""
    setting = "concurrency"
    settings: ClassVar[tuple[int | None, ...]] = (None,)  # a drain tries each one, and reports the best
    bulk = True  # it has a call that takes many jobs
    is_async = False  # `submitting` and `put` are
    own_processes = False  # one worker starts the others
    warm_up = 6  # submits a caller before the watch starts: psycopg prepares a statement at its sixth use
    done = "committed"  # when a job of a mixed load counts as done; else "handler"
    command: ClassVar[list[str]] = [sys.executable, sys.argv[0]]

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop that the system recommends."""
        import asyncio  # noqa: PLC0415 -- the memory of workers is measured

        return asyncio.run(scenario)

    def scratch(self, base: str) -> AbstractContextManager[str]:
        """Yield where a new, empty system is, with a table for effects; remove it afterwards."""
        raise NotImplementedError

    def put(self, where: str, payloads: list[dict[str, Any]]) -> Any:
        """Enqueue these jobs in the fastest documented way."""
        raise NotImplementedError

    def submitting(self, where: str, callers: int) -> Any:
        """Yield a function that enqueues one job and returns when it is durable."""
        raise NotImplementedError

    def work(self, handler: Handler) -> None:
        """Call `handler.ready()`, then run jobs until the process is ended."""
        raise NotImplementedError

    def rest(self, where: str) -> int:
        """Return how many jobs have not ended."""
        raise NotImplementedError

    def effects(self, where: str) -> int:
        raise NotImplementedError

    def usage(self, where: str) -> dict[str, int]:  # noqa: ARG002 -- for those that can tell
        """Return `disk` and `wal`, in bytes, as far as they are known."""
        return {}

    def settle(self, where: str) -> None:
        """Do what the database does by itself within a minute, such as to vacuum and analyse."""


def main(peer: Peer) -> None:
    """Run a worker, or measure one scenario."""
    if sys.argv[1] == WORK:
        peer.work(Handler(sys.argv[2]))
        return
    try:
        from benchmarks.peers._common import measure  # noqa: PLC0415 -- a worker does not need it
    except ImportError:
        from _common import measure  # type: ignore[import-not-found, no-redef]  # noqa: PLC0415
    measure(peer)


# ---------------------------------------------------------------------------------------------------------------------
# Scratch places


@contextmanager
def scratch_file(url: str, name: str = "queue.db") -> Iterator[Path]:
    """Yield a new path next to the file that the URL names; its directory is removed afterwards."""
    import shutil  # noqa: PLC0415 -- a worker does not need it

    beside = Path(url.removeprefix("sqlite:///"))
    directory = beside.with_name(f"{beside.name}.peer-{os.getpid()}-{time.monotonic_ns()}")
    directory.mkdir(parents=True)
    try:
        yield directory / name
    finally:
        shutil.rmtree(directory)


def file_usage(path: str) -> dict[str, int]:
    """Return the size of a SQLite database, what is not yet checkpointed included."""
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        [[pages], [size]] = (
            connection.execute("PRAGMA page_count").fetchall() + connection.execute("PRAGMA page_size").fetchall()
        )
    return {"disk": pages * size}


def scratch_database(url: str) -> tuple[str, str]:
    """Return the name of a new database, and its URL."""
    name = f"peer_{os.getpid()}_{time.monotonic_ns()}"
    return name, f"{url.rpartition('/')[0]}/{name}"
