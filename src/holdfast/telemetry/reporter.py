"""Reports a ledger to a sink of telemetry: what this process commits, and what the ledger holds.

Invariants: it works on the thread of its subscription, after the commit, so nothing waits for it; a value that cannot
be read is left out and logged, and read again at the next export.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.core.machines import JOB, JobState
from holdfast.engine.events import Bus, Committed, Subscription, Transition
from holdfast.telemetry.metrics import STATE
from holdfast.telemetry.state import Value, state_of

if TYPE_CHECKING:
    from holdfast.nodd.metrics import Sink
    from holdfast.store.store import Store

logger = logging.getLogger("holdfast")

LOST = frozenset({"expire", "revoke"})  # the events of a job that lost its lease
ENDS = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.QUARANTINED})
READ_S = 1.0  # one read of the state serves all gauges of an export


class LedgerReporter:
    """Reports one ledger to a sink."""

    def __init__(self, sink: Sink, store: Store[Any]) -> None:
        self._sink = sink
        self._store = store
        self._lock = threading.Lock()
        self._read_at, self._values = float("-inf"), list[Value]()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._lost = 0

    def follow(self, bus: Bus) -> None:
        """Report what this process commits from now on, and the ledger's state at each export."""
        self._subscriptions = (
            bus.subscribe_to_transitions(self.moved),
            bus.subscribe(self.committed, Committed),
        )
        for name in STATE:
            self._sink.observe(name, partial(self._observed, name))

    def close(self) -> None:
        """Report what is queued, and stop."""
        for subscription in self._subscriptions:
            subscription.flush()
            subscription.close()
        self._report_lost()

    def moved(self, event: Transition) -> None:
        if event.machine != JOB.name:
            return
        operation, queue = event.operation or "", event.queue or ""
        source = event.source or ""
        self._sink.add(
            "job.transitions", operation=operation, queue=queue, event=event.event, source=source, target=event.target
        )
        if event.since is not None:
            seconds = max(0.0, (event.at - event.since).total_seconds())
            self._sink.record("job.time_in_state", seconds, operation=operation, state=source)
        if event.target in ENDS and event.attempt is not None:
            self._sink.record("job.attempts", event.attempt, operation=operation, outcome=event.target)
        if event.event in LOST:
            self._sink.add("lease.losses", operation=operation, queue=queue)

    def committed(self, event: Committed) -> None:
        self._sink.record("commit.batch", event.tasks)
        if event.wrote:
            self._sink.add("commit.fsyncs")
        self._report_lost()

    def _report_lost(self) -> None:
        lost = sum(subscription.lost for subscription in self._subscriptions)
        if lost > self._lost:
            self._sink.add("telemetry.lost", lost - self._lost)
            self._lost = lost

    def _observed(self, name: str) -> Iterable[tuple[float, Mapping[str, str]]]:
        with self._lock:
            if time.monotonic() - self._read_at > READ_S:
                try:
                    self._values = state_of(self._store)
                except HoldfastError as error:
                    logger.warning("the state of the ledger cannot be reported: %s", error)
                    self._values = []
                self._read_at = time.monotonic()
            return [(value.value, value.labels) for value in self._values if value.name == name]
