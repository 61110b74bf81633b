"""Builds the fsync shim for child processes: every sync takes the same time, and is counted.

Invariants:
- only processes started with `env()`, and their children, use the simulated disk; this process does not;
- one disk has one counter for all processes and users; a read includes every call that has finished;
- all files are in one directory, which `close` removes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

SOURCE = Path(__file__).with_name("fsyncshim.c")


class DiskError(RuntimeError):
    """The simulated disk cannot be built here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Syncs:
    """The number of calls of each kind."""

    fsync: int
    fdatasync: int

    @property
    def total(self) -> int:
        return self.fsync + self.fdatasync

    def __sub__(self, earlier: Syncs) -> Syncs:
        return Syncs(self.fsync - earlier.fsync, self.fdatasync - earlier.fdatasync)


class SimulatedDisk:
    """The built shim with its counter; a context manager."""

    def __init__(self, *, sync_us: int = 1000) -> None:
        self.sync_us = sync_us
        self._directory = Path(tempfile.mkdtemp(prefix="holdfast-disk-"))
        try:
            # A database server on this disk may run as another user.
            self._directory.chmod(0o755)
            self.library = _build(self._directory)
            self.counter = self._directory / "counter"
            self.counter.write_bytes(bytes(16))
            self.counter.chmod(0o666)
            with self.counter.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 16)
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        # Views of the map itself: an aligned 64-bit load or store, never a torn one.
        self._counters = (ctypes.c_uint64 * 2).from_buffer(self._map)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def env(self) -> dict[str, str]:
        """Return the environment for a child: that of this process, with the shim before any other preload."""
        preload = [str(self.library), *filter(None, [os.environ.get("LD_PRELOAD")])]
        return {
            **os.environ,
            "LD_PRELOAD": " ".join(preload),
            "HOLDFAST_SHIM_COUNTER": str(self.counter),
            "HOLDFAST_SHIM_SLEEP_US": str(self.sync_us),
        }

    def read(self) -> Syncs:
        return Syncs(fsync=self._counters[0], fdatasync=self._counters[1])

    def reset(self) -> None:
        """Set the counters to zero. Calls at the same time may be lost: while processes run, measure differences."""
        self._counters[0] = self._counters[1] = 0

    def close(self) -> None:
        if not self._map.closed:
            del self._counters  # the map cannot be closed while a view of it exists
            self._map.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _build(directory: Path) -> Path:
    if sys.platform != "linux":
        raise DiskError("The simulated disk needs Linux: it works by LD_PRELOAD.")
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise DiskError("The simulated disk needs a C compiler: install gcc or clang, or name one in CC.")
    library = directory / "fsyncshim.so"
    command = [compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    done = subprocess.run([*command, "-o", str(library), str(SOURCE)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DiskError(f"{compiler} could not build {SOURCE.name}:\n{done.stderr}")
    return library
