"""A fork server: a small parent that has imported Holdfast once, and forks children that run one role each.

A fork takes a few milliseconds, a start of Python hundreds, so a test can kill hundreds of children.

Invariants: the server has one thread and no ledger, so a child inherits no lock and no connection; only the server
signals and reaps, so a signal never reaches another process with a reused id; no child outlives the server or the
block that borrowed it, and no server outlives the process that started it.

A role is a function `module:name` that takes keyword arguments of JSON types. An exception is written to the
server's log; the child then exits with 1. A child that is killed by signal n has the status -n.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
PR_SET_PDEATHSIG = 1
FAILED = 1


# ---------------------------------------------------------------------------------------------------------------------
# In the test


class Child:
    """A process that runs a role."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid

    def __repr__(self) -> str:
        return f"Child({self.pid})"

    def signal(self, signum: int) -> bool:
        """Send a signal; return whether the child was still running."""
        return bool(self._server.request(do="signal", pid=self.pid, signum=int(signum)))

    def kill(self) -> int:
        """Send SIGKILL to the child, and return its status after it has ended."""
        self.signal(signal.SIGKILL)
        return self.wait(10)

    def wait(self, timeout_s: float) -> int:
        """Return the exit status of the role, or minus the number of the signal that killed it."""
        status = self._server.request(do="wait", pid=self.pid, timeout_s=timeout_s)
        if status is None:
            raise TimeoutError(f"child {self.pid} still runs after {timeout_s:g} s\n{self._server.log}")
        return int(status)

    @property
    def running(self) -> bool:
        return self._server.request(do="wait", pid=self.pid, timeout_s=0) is None


class ForkServer:
    """Starts the server, and sends it requests for children."""

    def __init__(self, *modules: str) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as the server runs
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forkserver", *modules],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def spawn(self, role: str, **arguments: object) -> Child:
        """Fork a child that runs this role."""
        return Child(self, int(self.request(do="spawn", role=role, arguments=arguments)))

    def request(self, **request: object) -> Any:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the fork server has ended\n{self.log}")
        return json.loads(line)

    @property
    def log(self) -> str:
        """The standard error of the server and its children."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def close(self) -> None:
        """End the server and every child."""
        self._process.communicate()
        self._log.close()


@contextmanager
def shared_server(*modules: str) -> Iterator[ForkServer]:
    """Yield a server that the tests of this process share whose roles are in one folder; its children are killed after.

    To start one takes half a second of CPU; it imports the modules that it has not imported yet. Its log has what the
    children of earlier tests wrote, too.
    """
    server = _started(modules[0].rpartition(".")[0])
    server.request(do="load", modules=modules)
    try:
        yield server
    finally:
        server.request(do="end_all")


@cache
def _started(folder: str) -> ForkServer:
    server = ForkServer(folder)
    atexit.register(server.close)
    return server


# ---------------------------------------------------------------------------------------------------------------------
# In the server


class _Server:
    def __init__(self) -> None:
        self._pidfds: dict[int, int] = {}
        self._ended: dict[int, int] = {}

    def serve(self) -> None:
        for line in sys.stdin:
            request = json.loads(line)
            answer = getattr(self, request.pop("do"))(**request)
            print(json.dumps(answer), flush=True)
        self.end_all()

    def load(self, modules: list[str]) -> None:
        for module in modules:
            importlib.import_module(module)
        # A collection in a child would write to, and so copy, all pages of what was imported.
        gc.collect()
        gc.freeze()

    def end_all(self) -> None:
        for pid in list(self._pidfds):
            self.signal(pid, signal.SIGKILL)
            self.wait(pid, 10)

    def spawn(self, role: str, arguments: dict[str, Any]) -> int:
        server_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            _run_role(role, arguments, server_pid)
        self._pidfds[pid] = os.pidfd_open(pid)
        self._ended.pop(pid, None)  # of an earlier child that had this id
        return pid

    def signal(self, pid: int, signum: int) -> bool:
        if self.wait(pid, 0) is not None:
            return False
        signal.pidfd_send_signal(self._pidfds[pid], signum)
        return True

    def wait(self, pid: int, timeout_s: float) -> int | None:
        if pid not in self._ended:
            ready, _, _ = select.select([self._pidfds[pid]], [], [], timeout_s)
            if not ready:
                return None
            _, status = os.waitpid(pid, 0)
            os.close(self._pidfds.pop(pid))
            self._ended[pid] = os.waitstatus_to_exitcode(status)
        return self._ended[pid]


def _run_role(role: str, arguments: dict[str, Any], server_pid: int) -> None:
    status = FAILED
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server_pid:
            os._exit(FAILED)
        # The server uses its standard input and output to communicate with the test.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        module, _, name = role.partition(":")
        getattr(importlib.import_module(module), name)(**arguments)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else FAILED
    except BaseException:  # noqa: BLE001 - the test must see every error
        print(f"child {os.getpid()} ({role}) at {time.monotonic():.3f}", file=sys.stderr)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Not sys.exit: the exit handlers of the server must not run in the child.
        os._exit(status)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        importlib.import_module(each)
    _Server().serve()
