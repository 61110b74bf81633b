"""The feed: a poller that receives messages, admits them in one transaction, and deletes them after the commit.

Invariants: a message is deleted only after its content is durable in the ledger; after a crash in between, the message
comes again as a duplicate, which is a no-op; a rejected message is stored in the ledger and then deleted too; after any
failure the message stays in the queue, which delivers it again. With `poll_and_process`, a message is deleted only when
all its units have succeeded or are quarantined.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.machines import JOB, JobState
from holdfast.engine.events import Bus
from holdfast.nodd.admission import Admitted, FeedMessage, admit
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.queues import WAIT_S, Queue, Received
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.nodd.signatures import Signatures
from holdfast.nodd.units import CLIENT
from holdfast.store import Store

logger = logging.getLogger("holdfast.nodd")

VISIBILITY_S = 300
HEARTBEATS = 3  # per visibility timeout
PATIENCE_S = 3600.0  # SQS keeps a message invisible for twelve hours at most
LOOK_S = 0.05
# None: retention has removed the job.
ENDS: frozenset[JobState | None] = frozenset({*map(JobState, JOB.final), None})
RESTS = ENDS | {JobState.FAILED}


class PollResult(msgspec.Struct, frozen=True):
    """The result of one poll."""

    received: int
    fates: Mapping[str, int]
    admitted: tuple[Admitted, ...] = ()
    left: int = 0  # messages that were not deleted and will come again


class Feed:
    """Reads messages of one queue into one ledger."""

    def __init__(
        self,
        store: Store[Any],
        queue: Queue,
        datasets: Datasets,
        *,
        actor: str = "nodd",
        reach: Callable[[str], None] = lambda _point: None,
        reporter: TelemetryReporter | None = None,
        bus: Bus | None = None,
        signatures: Signatures | None = None,
    ) -> None:
        self._reporter, self._bus = reporter, bus
        if reporter is not None:
            reporter.look_at(queue)
        self._store, self._queue, self._datasets = store, queue, datasets
        self._actor, self._reach, self._signatures = actor, reach, signatures
        self._waiting = False

    @property
    def waiting(self) -> bool:
        """Whether it waits for messages and holds none, so that it can be stopped at once."""
        return self._waiting

    def poll(self, *, wait_s: int = WAIT_S, stop: threading.Event | None = None) -> PollResult:
        """Receive one batch, admit it, and delete its messages."""
        received = self._received(stop, wait_s=wait_s)
        if not received:
            return PollResult(0, {})
        admitted = self._admit(received)
        self._reach("after_admission")
        left = self._queue.delete(received)
        self._reach("after_delete")
        return PollResult(len(received), _counted(admitted), tuple(admitted), len(left))

    def poll_and_process(
        self,
        *,
        wait_s: int = WAIT_S,
        visibility_s: int = VISIBILITY_S,
        timeout_s: float = PATIENCE_S,
        stop: threading.Event | None = None,
    ) -> PollResult:
        """Receive and admit one batch, and delete each message only when all its units have finished.

        Until then the message stays invisible. A message whose work failed is not deleted: SQS delivers it again, and
        finally moves it to the dead-letter queue, so every message there has a record that failed.
        """
        received = self._received(stop, wait_s=wait_s, visibility_s=visibility_s)
        if not received:
            return PollResult(0, {})
        admitted = self._admit(received)
        self._reach("after_admission")
        brought: dict[str, list[str]] = {}
        for found in admitted:
            if found.wal_id is not None:
                brought.setdefault(found.message_id or "", []).append(found.wal_id)
        waiting = list(received)
        left = 0
        ends = time.monotonic() + timeout_s
        beat = time.monotonic() + visibility_s / HEARTBEATS
        while True:
            states = self._states(sorted({wal_id for wal_ids in brought.values() for wal_id in wal_ids}))
            found_states = [{states.get(wal_id) for wal_id in brought.get(one.message_id, ())} for one in waiting]
            ended = [one for one, found in zip(waiting, found_states, strict=True) if found <= ENDS]
            left += sum(found <= RESTS for found in found_states) - len(ended)
            waiting = [one for one, found in zip(waiting, found_states, strict=True) if not found <= RESTS]
            if ended:
                self._reach("after_work")
                left += len(self._queue.delete(ended))
                self._reach("after_delete")
            if not waiting or time.monotonic() > ends or (stop is not None and stop.is_set()):
                return PollResult(len(received), _counted(admitted), tuple(admitted), left + len(waiting))
            if time.monotonic() > beat:
                self._queue.keep(waiting, visibility_s)
                beat = time.monotonic() + visibility_s / HEARTBEATS
            time.sleep(LOOK_S)

    def run(
        self,
        stop: threading.Event,
        *,
        on_poll: Callable[[PollResult], None] | None = None,
        wait_s: int = WAIT_S,
        ack_after_work: bool = False,
    ) -> None:
        """Poll until `stop` is set; after an error, log it and poll again after a pause of 1 to 60 s."""
        pause_s = 1.0
        poll = self.poll_and_process if ack_after_work else self.poll
        while not stop.is_set():
            try:
                polled = poll(wait_s=wait_s, stop=stop)
            except HoldfastError as error:
                logger.warning("polling failed, trying again in %.0f s: %s", pause_s, error)
                stop.wait(pause_s)
                pause_s = min(pause_s * 2, 60.0)
                continue
            pause_s = 1.0
            if on_poll is not None:
                on_poll(polled)

    def _received(self, stop: threading.Event | None, **how: int) -> list[Received]:
        self._waiting = True
        received = self._queue.receive(**how)
        self._waiting = False
        if received and stop is not None and stop.is_set():
            self._queue.keep(received, 0)  # this process stops: another reader can have them at once
            return []
        return received

    def _admit(self, received: Sequence[Received]) -> list[Admitted]:
        messages = [FeedMessage(message.body, message.message_id) for message in received]
        admitted = admit(
            self._store, messages, self._datasets, actor=self._actor, bus=self._bus, signatures=self._signatures
        )
        if self._reporter is not None:
            self._reporter.received(received)
            self._reporter.admitted(admitted)
        return admitted

    def _states(self, wal_ids: Sequence[str]) -> dict[str, JobState]:
        with self._store.reading() as reading:
            jobs = reading.jobs.by_key([(CLIENT, wal_id) for wal_id in wal_ids])
        return {wal_id: job.state for (_, wal_id), job in jobs.items()}


def _counted(admitted: Sequence[Admitted]) -> dict[str, int]:
    return dict(sorted(Counter(str(found.fate) for found in admitted).items()))
