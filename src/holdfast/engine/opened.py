"""A ledger in use: its store, its committer, and what one process knows of its operations.

Invariants: it belongs to the process that opened it; an operation is declared to the ledger before work for it is
recorded; a check that finds or fails at something never keeps a ledger from being used.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError, RefusedError
from holdfast.engine.committer import Committer
from holdfast.engine.operations import Call
from holdfast.engine.submit import KnownOperations, keyed, prepare
from holdfast.engine.tasks import CallTask, SubmitTask, Task
from holdfast.store import Admission, Submission, Transaction, create_store, open_store
from holdfast.store.requests import patterns

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.waiting import Attendant

logger = logging.getLogger("holdfast")


class OpenedLedger:
    """What exists once a ledger is in use in one process."""

    def __init__(self, ledger: Ledger, url: str) -> None:
        self.url = url
        self.pid = os.getpid()
        opening = create_store if ledger.create else open_store
        self.store = opening(url, ledger.world.clock, schema=ledger.schema)
        self.committer = Committer(self.store, ledger.world, self._committed)
        self.known = KnownOperations(ledger.operations, self.store.operations, ledger.payload_bytes_max)
        self.lock = threading.Lock()
        self.attendants: dict[str, Attendant[Any]] = {}  # once a caller waits for a job, or an event loop submits
        self._declared: set[tuple[str, str]] = set()  # operations, by name and version
        self._ledger = ledger

    # -- submitting ---------------------------------------------------------------------------------------------------

    def submit(self, calls: Sequence[Call]) -> list[Admission]:
        """Record calls, all or none, in one transaction with whatever else this process writes."""
        return self._admitted(calls, self._submitted)

    def submit_in(
        self, transaction: Transaction, calls: Sequence[Call], parent: int | None = None, **signed: str | None
    ) -> list[Admission]:
        """Record calls in a caller's transaction; with `parent`, as the follow-ups of that job."""

        def write(submissions: Sequence[Submission]) -> list[Admission]:
            return transaction.jobs.submit(submissions if parent is None else keyed(parent, submissions), **signed)

        return self._admitted(calls, write, transaction)

    def prepared(
        self, calls: Sequence[Call], transaction: Transaction | None = None, confirmed: Collection[object] = ()
    ) -> Sequence[Submission]:
        """Return what the store records for each call."""
        handlers = self.known.handlers
        if len(self._declared) != len(handlers) and any(handlers.get(call.operation) for call in patterns(calls)):
            self.declare_new(transaction)
        self.known.refresh(self.store, calls)
        if len(calls) == 1:
            return [prepare(calls[0], self.known, confirmed)]
        from holdfast.engine.bulk import prepared  # noqa: PLC0415 - of several calls

        return prepared(calls, self.known, confirmed)

    def _admitted(
        self,
        calls: Sequence[Call],
        write: Callable[[Sequence[Submission]], list[Admission]],
        transaction: Transaction | None = None,
    ) -> list[Admission]:
        """Write calls; again, if the registry answers that another version is in force than a hint said."""
        confirmed: set[object] = set()
        while True:
            try:
                return write(self.prepared(calls, transaction, confirmed))
            except RefusedError as error:
                if not self.known.learn(error):
                    raise
                confirmed.add(error.context["operation"])

    def _submitted(self, submissions: Sequence[Submission]) -> list[Admission]:
        self.declare_new()  # also what no call names: a process declares its operations with its first write
        task = SubmitTask(submissions)
        self.committer.perform([task])
        return task.result()

    # -- declaring ----------------------------------------------------------------------------------------------------

    def declare_new(self, transaction: Transaction | None = None) -> None:
        """Declare to the ledger what was declared here since: of each operation the newest version."""
        handlers = self.known.handlers
        if len(self._declared) == len(handlers):
            return
        every = {(op.name, op.version) for op in handlers}
        names = {name for name, _ in every - self._declared}
        new = {name: newest.declared for name in names if (newest := handlers.get(name)) is not None}
        if new and transaction is not None and self.store.one_writer:
            transaction.operations.declare(new)  # and again next time: the caller may roll it back
        elif new:
            task = CallTask(lambda tx: tx.operations.declare(new))
            self.committer.perform([task])
            task.result()
            self._declared.update(every)
            self.store.operations.update(new)

    # -- after a commit, and after opening ----------------------------------------------------------------------------

    def _committed(self, tasks: Sequence[Task[Any]]) -> None:
        """Wake those who wait for a job, and publish what a group of tasks has changed, in the order it was written."""
        for attendant in list(self.attendants.values()):
            attendant.notify()
        if self._ledger.listening:
            self._ledger.bus.publish_commit(tasks, self.store.now())

    def close(self) -> None:
        """End the waits and the submits of event loops that have not begun, and close the store."""
        for attendant in list(self.attendants.values()):
            attendant.close()
        self.store.close()

    def check(self) -> None:
        """Run the quick checks, where there is anything to check; whatever they find or fail at, the ledger is open."""
        try:
            with self.store.reading() as reading:
                if not reading.executions.anything_to_check():
                    return
            from holdfast.engine.upkeep.checks import check_at_open  # noqa: PLC0415 - audit, where there is work for it

            check_at_open(self._ledger, self.store)
        except HoldfastError as error:
            logger.warning("the ledger could not be checked when it opened: %s", error)
