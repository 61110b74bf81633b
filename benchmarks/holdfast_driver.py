"""Drives Holdfast through its public API and its real worker, as the drivers of the peers drive theirs.

Invariants: journal, triggers and full durability are on, as always; a worker has its default settings, but for the
number of threads; only the public API is used.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

from benchmarks.peers._peer import EFFECTS_TABLE, Handler, Peer, file_usage, main, scratch_file
from benchmarks.peers._pg import PostgresPeer
from holdfast import Execution, Ledger, Operations, Worker
from holdfast.core.machines import JobState

CONCURRENCY = 4
EFFECT = "INSERT INTO effects VALUES (:job, :amount)"


def operations_of(handler: Handler | None, numbers: dict[int, int]) -> Operations:
    """Return the one operation, which notes the number of each job by its id; a failing job is not tried again."""
    operations = Operations()

    @operations.operation("handle", max_attempts=1)
    def handle(run: Execution, /, **payload: Any) -> None:
        if handler is None:
            return
        handler.enter()
        if handler.effect:
            run.effect(EFFECT, {"job": payload["order"], "amount": payload["amount"]})
        if handler.by_commit:
            numbers[run.job.job_id] = payload["amount"]
        handler.leave(payload)

    return operations


class _Holdfast(Peer):
    name = "holdfast"
    setting, settings = "threads", (CONCURRENCY,)
    warm_up = 6
    command: ClassVar[list[str]] = [sys.executable, "-m", "benchmarks.holdfast_driver"]

    def __init__(self) -> None:
        super().__init__()
        self._ledgers: dict[str, Ledger] = {}
        self._open = ExitStack()

    def ledger(self, where: str) -> Ledger:
        """Return the driver's own ledger object: it submits and counts, and runs nothing."""
        if where not in self._ledgers:
            self._ledgers[where] = self._open.enter_context(Ledger(where, operations_of(None, {})))
        return self._ledgers[where]

    def close(self) -> None:
        self._open.close()
        self._ledgers.clear()

    def put(self, where: str, payloads: list[dict[str, Any]]) -> None:
        self.ledger(where).submit_many([{"operation": "handle", "payload": payload} for payload in payloads])

    @contextmanager
    def submitting(self, where: str, callers: int) -> Iterator[Callable[[dict[str, Any]], object]]:  # noqa: ARG002
        ledger = self.ledger(where)
        yield lambda payload: ledger.submit("handle", payload)

    def work(self, handler: Handler) -> None:
        numbers: dict[int, int] = {}
        with Ledger(handler.where, operations_of(handler, numbers)) as ledger:
            if handler.mode == "mixed":
                handler.by_commit = True

                def ended(event: Any) -> None:
                    if event.machine == "JOB" and event.job_id in numbers and event.target != JobState.RUNNING:
                        handler.ended(numbers.pop(event.job_id))

                ledger.subscribe(ended)
            ledger.counts()  # opens it
            handler.ready()
            Worker(ledger, concurrency=handler.setting or CONCURRENCY).run()

    def rest(self, where: str) -> int:
        open_states = {JobState.PENDING, JobState.RUNNING}
        return sum(count.n for count in self.ledger(where).counts() if count.state in open_states)


class OnSqlite(_Holdfast):
    durability = f"WAL, synchronous=FULL, SQLite {sqlite3.sqlite_version}"

    @contextmanager
    def scratch(self, base: str) -> Iterator[str]:
        with scratch_file(base, "ledger.db") as path:
            self.ledger(str(path)).counts()
            with sqlite3.connect(path) as connection:
                connection.execute(EFFECTS_TABLE)
            try:
                yield str(path)
            finally:
                self.close()

    def effects(self, where: str) -> int:
        count: int = sqlite3.connect(where).execute("SELECT count(*) FROM effects").fetchone()[0]
        return count

    def usage(self, where: str) -> dict[str, int]:
        return file_usage(where)


class OnPostgres(_Holdfast, PostgresPeer):
    def install(self, url: str) -> None:
        self.ledger(url).counts()

    @contextmanager
    def scratch(self, base: str) -> Iterator[str]:
        with PostgresPeer.scratch(self, base) as url:
            try:
                yield url
            finally:
                self.close()

    durability = PostgresPeer.durability


if __name__ == "__main__":
    main(OnPostgres() if any("postgres" in argument for argument in sys.argv) else OnSqlite())
