"""Kills this process at one step of its work; crash tests name the step by its number.

A crash point is a number: the n-th step since the trap was armed. The watched actions are the steps: statements of
SQLite, statements and commits of PostgreSQL, calls of a function. A run without a number is not killed, and `count` is
then the number of steps.

Invariants: only steps of the thread that created the trap are counted, so every run has the same steps in the same
order; the process ends by SIGKILL, so no cleanup runs.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from holdfast.store.sqlite.store import SqliteStore


def die() -> None:
    """End this process immediately, as a power cut or the kernel's out-of-memory killer does."""
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


class Trap:
    """Counts the steps of this process while it is armed, and kills it at one of them."""

    def __init__(self, kill_at: int | None = None, *, armed: bool = False) -> None:
        self.count = 0
        self.armed = armed
        self._kill_at = kill_at
        self._thread = threading.get_ident()
        self._last_statement = ""

    def step(self) -> bool:
        """Count one step; return whether the process must be killed at this step."""
        if not self.armed or threading.get_ident() != self._thread:
            return False
        self.count += 1
        return self.count == self._kill_at

    def watch_sqlite(self, by: str = "statement") -> None:
        """Watch every connection that a SQLite store opens from now on.

        By `statement`, by `trigger` (each statement of a trigger too) or by `opcode` of SQLite's virtual machine.
        """
        opened = SqliteStore._open

        def _open(store: SqliteStore) -> sqlite3.Connection:
            connection = opened(store)
            if by == "opcode":
                connection.set_progress_handler(self._reached, 1)
            else:
                connection.set_trace_callback(self._statement if by == "statement" else self._reached)
            return connection

        SqliteStore._open = _open  # type: ignore[method-assign, assignment]

    def watch_postgres(self) -> None:
        """Watch each statement sent to PostgreSQL, and each commit, before and after it."""
        self.watch_calls(psycopg.Cursor, "execute", "executemany", after=False)
        self.watch_calls(psycopg.Connection, "commit")

    def watch_calls(
        self,
        owner: Any,
        *names: str,
        before: bool = True,
        after: bool = True,
        last_act: Callable[..., object] | None = None,
    ) -> None:
        """Watch calls of functions, before them, after them or both; `last_act(name, *args)` runs before a kill."""
        for name in names:
            setattr(owner, name, self._watched(name, getattr(owner, name), before, after, last_act))

    def _watched(
        self, name: str, act: Callable[..., Any], before: bool, after: bool, last_act: Callable[..., object] | None
    ) -> Callable[..., Any]:
        def acting(*args: Any, **named: Any) -> Any:
            # Old plans are dropped by the real clock, at different steps in different runs.
            counted = args[1:2] != ("DISCARD PLANS",)
            if before and counted and self.step():
                if last_act is not None:
                    last_act(name, *args)
                die()
            answer = act(*args, **named)
            if after and counted and self.step():
                die()
            return answer

        return acting

    def _statement(self, text: str) -> None:
        # SQLite reports a trigger's own statements under the text of the statement that fired it.
        if text != self._last_statement:
            self._last_statement = text
            self._reached()

    def _reached(self, _text: str | None = None) -> int:
        if self.step():
            die()
        return 0
