"""The worker: claims jobs, runs their handlers and writes how they ended, until it is stopped.

One loop: gather what has ended, write all of it together with the next claim in one transaction, hand what was claimed
to the slots. While nothing is due it sleeps until the next job is due or a job is submitted.

Invariants: an attempt is started only under a lease that this worker holds; what ended is written again and again until
the ledger answers, through a database restart too; a refused ending is dropped, because another worker holds the job; a
graceful stop gives back what it cannot finish, excused; the worker's name is new at every start.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.core.errors import InputError, LedgerFileError, StoreError
from holdfast.core.guarded import guarded
from holdfast.engine.operations import LEASE_S
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.bell import Bell
from holdfast.engine.worker.heartbeat import Heartbeat
from holdfast.engine.worker.keeper import Keeper
from holdfast.engine.worker.pace import AHEAD_S, PAYLOAD_MAX, POLL_S, SEEN_S, SHORT_S, Pace
from holdfast.engine.worker.reaper import Reaper, RecoveryReport, recover
from holdfast.engine.worker.slots import ThreadSlots
from holdfast.engine.worker.turn import Turn
from holdfast.engine.world import Crash
from holdfast.store import Lease

if TYPE_CHECKING:
    from holdfast.engine.ledger import Ledger
    from holdfast.engine.upkeep.duties import Duty, Periods
    from holdfast.engine.worker.connections import EffectConnection, TurnConnections
    from holdfast.engine.worker.some_slots import Slots
    from holdfast.store.watch import Watch

logger = logging.getLogger("holdfast")

DRAIN_S = 30.0
FLUSH_S = 2.0  # how long a stop tries to write what it has in hand
BATCH_MAX = 1000
LINGER_S = 0.005  # how long the ends of short handlers wait for more of them
UNSTARTED_S = 1.0  # an attempt that no slot has taken for so long is given back
UNLEASED_S = 10.0  # a handler that goes on for so long after its lease was lost leaves its slot to others
CONTENDED_S = 0.005
BACKLOG_MIN = 100  # a turn that claims and gets as many shows a backlog
RETRY_FIRST_S, RETRY_LAST_S = 0.05, 2.0


class Worker:
    """Runs the operations of a ledger."""

    @guarded
    def __init__(
        self,
        ledger: Ledger,
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 8,
        executor: str | Executor = "threads",
        batch_max: int = BATCH_MAX,
        poll_s: float = POLL_S,
        drain_s: float = DRAIN_S,
        abandoned_max: int | None = None,
        periods: Periods | None = None,
        duties: Sequence[Duty] = (),
    ) -> None:
        if isinstance(queues, str):
            raise TypeError("queues is one text")  # each letter would be a queue
        known = (isinstance(executor, Executor) or executor.isalpha()) and "".join(queues)
        if not (known and concurrency >= 1 and batch_max >= 1 and poll_s > 0 and drain_s >= 0):
            raise InputError("queues must not be empty; concurrency, batch_max, poll_s and drain_s must be above 0")
        self._ledger = ledger
        self._queues = tuple(dict.fromkeys(queues))
        self._concurrency = concurrency
        self._executor = executor
        self._batch_max = max(batch_max, concurrency)
        self._poll_s = poll_s
        self._drain_s = drain_s
        self._abandoned_max = concurrency if abandoned_max is None else abandoned_max
        self._periods = periods  # of the keeper's own duties
        self._duties = tuple(duties)  # more for the keeper
        self.worker_id = f"worker-{ledger.world.new_name()}"
        self.report: RecoveryReport | None = None
        self.recycle = False  # too many threads were abandoned: this process should be replaced
        self._pace = Pace(concurrency, self._batch_max)
        self._bell = Bell()
        self._watch: Watch | None = None
        self._lingering = self._woken = False  # woken: look for work now
        self._slots: list[Slots] = []  # for plain handlers, and for `async def` once there is one
        self._done: deque[HeldAttempt] = deque()  # ended by other threads, and not yet gathered
        self._held: dict[int, HeldAttempt] = {}  # by `id`: leased and not gathered, in the order of their claims
        self._ended: list[HeldAttempt] = []  # to be written
        self._stopping = self._at_once = False  # plain flags: a signal handler may set them at any moment
        self._attempts = 0
        self._seen_at = 0.0
        self._due_at: datetime | None = None
        self._outage_s = RETRY_FIRST_S
        self._filled = False  # the last turn got as much as it claimed: there is a backlog
        self._turns: TurnConnections | None = None  # once there was a backlog
        self._effects: EffectConnection | None = None  # once an end has effects that may wait

    # -- from outside -------------------------------------------------------------------------------------------------

    def stop(self, *, at_once: bool = False) -> None:
        """Stop: claim nothing more, wait up to `drain_s` for what runs, and give the rest back."""
        self._stopping, self._at_once = True, self._at_once or at_once
        self.wake()

    def wake(self) -> None:
        """Look for work now."""
        self._woken = True
        self._bell.ring()

    def held(self) -> list[HeldAttempt]:
        """Return the attempts that this worker holds."""
        elsewhere = [*(self._turns.ended if self._turns else ()), *(self._effects.ended if self._effects else ())]
        return [*self._held.values(), *self._ended, *elsewhere]

    @property
    def _busy(self) -> bool:
        elsewhere = (self._turns and self._turns.turns) or (self._effects and self._effects.ended)
        return bool(self._held or self._ended or elsewhere)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self, *, until_idle: bool = False) -> int:
        """Work until stopped, or until nothing is due; return how many attempts were made."""
        with ExitStack() as ends:
            ends.callback(self._bell.close)
            ends.push(self._sign_off)
            self._slots = [self._plain_slots()]
            ends.callback(self._close_slots)
            ends.callback(self._let_go)
            self.report = self._recover_first()
            if self._executor != "inline":  # inline runs use one thread only
                self._start_helpers(ends)
            if not until_idle:
                self._watch = self._ledger.store.watch()
                ends.callback(self._watch.close)
            self._due_at = self._ledger.store.now()
            self._loop(until_idle=until_idle)
            self._drain()
        return self._attempts

    def _start_helpers(self, ends: ExitStack) -> None:
        ends.callback(Heartbeat(self._ledger, self.held, self._register, self._free_slots).stop)
        leases = [operation.lease_s for operation in self._ledger.operations] or [LEASE_S]
        look_s = min(self._poll_s, min(leases) / 2)
        self._ledger.store.shortest_lease_s = min(leases)
        reaper = Reaper(
            self._ledger, actor=self.worker_id, period_s=look_s, lease_s=max(leases), on_recovered=self.wake
        )
        ends.callback(reaper.stop)
        ends.callback(Keeper(self._ledger, actor=self.worker_id, periods=self._periods, also=self._duties).stop)

    def _loop(self, *, until_idle: bool) -> None:
        while not self._stopping and not self.recycle:
            self._linger()
            room = self._room()
            looking = room > 0 and self._due_at is not None and self._due_at <= self._ledger.store.now()
            if self._ended and room > 0 and self._watch and self._ledger.store.one_writer:
                looking = True  # the watch reports what this thread writes, unless a claim is part of it
            wait_s = 0.0
            if looking or self._ended:
                if self._watch and not self._ledger.store.one_writer:
                    self._woken |= self._watch.changed()  # the server keeps announcements until they are read
                if self._filled and not self._ledger.listening:
                    self._give_turn(room if looking else 0)
                else:
                    claimed = self._write(room if looking else 0)
                    self._start(claimed)
                    if looking and len(claimed) < room:
                        self._due_at = self._next_due(after_empty=not claimed)
            elif until_idle and not self._busy:
                # Attempts that ended since may have made their jobs due again.
                self._due_at, now = self._next_due(), self._ledger.store.now()
                if self._due_at is None or self._due_at > now + self._ledger.store.now_error:
                    return
                wait_s = self._wait_s(room) if self._due_at > now else 0.0
            else:
                wait_s = self._wait_s(room)
            if not self._gather(wait_s) and wait_s:
                self._due_at = self._next_due()
            self._time_out()

    def _write(self, room: int) -> list[HeldAttempt]:
        """Write the attempts that have ended and claim `room` more, in one transaction; return what was claimed."""
        turn = self._turn(room)
        if turn.tasks:
            self._ledger.perform_tasks(turn.tasks)
        self._ended = []
        return self._settle(turn)

    def _turn(self, room: int) -> Turn:
        """Return what has ended and a claim of `room`. Heartbeats see what has ended until it is written."""
        if self._apart and any(running.stages for running in self._ended):
            self._give_effects()
        watch = self._watch if self._ledger.store.one_writer else None
        return Turn(self._ended, self._lease(room) if room else None, watch)

    def _settle(self, turn: Turn) -> list[HeldAttempt]:
        """Handle the ledger's answers to a turn; return what was claimed."""
        claimed = turn.settled(self._ledger)
        self._ended += turn.again
        if claimed:
            self._held.update((id(running), running) for running in claimed)
        if turn.claim is not None:
            several = self._executor != "inline" and not self._ledger.store.one_writer  # threads, and writers
            self._filled = several and len(claimed) == turn.room >= BACKLOG_MIN
        self._pause_for(turn.outage)
        return claimed

    def _give_effects(self) -> None:
        """Give the ends with effects to a connection of their own: they may wait for a lock on a table of the user."""
        if self._effects is None:
            from holdfast.engine.worker.connections import EffectConnection  # noqa: PLC0415 - many handlers stage none

            self._effects = EffectConnection(self._ledger, self.wake)
        self._effects.give([running for running in self._ended if running.stages])
        self._ended = [running for running in self._ended if not running.stages]

    def _give_turn(self, room: int) -> None:
        """Let another connection write what has ended and claim more, so that handlers run here meanwhile.

        If none is free, or the claim would be small, wait for one. A handler that ends does not end the wait.
        """
        if self._turns is None:
            from holdfast.engine.worker.connections import TurnConnections  # noqa: PLC0415 - only with a backlog

            self._turns = TurnConnections(self._ledger, self.wake)
        room = min(room, self._batch_max)
        if (room >= BACKLOG_MIN or not self._turns.turns) and self._turns.give(self._turn(room)):
            self._ended = []
            return
        self._lingering = True
        self._bell.sleep(LINGER_S, lambda: self._woken)
        self._lingering = False

    def _pause_for(self, outage: Exception | None) -> None:
        if outage is None:
            self._outage_s = RETRY_FIRST_S
            return
        if self._executor == "inline" or isinstance(outage, LedgerFileError):
            raise outage  # what is waited for may be held by this very thread; a file that was replaced stays so
        logger.warning("the database is unreachable; trying again in %g s: %s", self._outage_s, outage)
        time.sleep(self._outage_s)
        self._outage_s = min(self._outage_s * 2, RETRY_LAST_S)

    # -- starting and ending attempts ---------------------------------------------------------------------------------

    def _start(self, claimed: Sequence[HeldAttempt]) -> None:
        self._attempts += len(claimed)
        plain: list[HeldAttempt] = []
        for running in claimed:
            operation = running.operation
            if operation is None:
                running.finish(None)
                self._end(running)
            elif (operation.is_async or running.record.suspect) and self._executor != "inline":
                self._slots_for(running).start([running])
            else:
                plain.append(running)
        if plain:
            self._slots[0].start(plain)
        if self._executor == "inline" and (noted := self._ledger.take_progress()):
            # Here no heartbeat does it.
            self._ledger.perform(lambda transaction: transaction.notes.save_progress(noted))

    def _on_end(self, running: HeldAttempt) -> None:
        """Take an attempt that its handler has ended, from the handler's thread."""
        self._done.append(running)
        if self._bell.asleep and (not self._lingering or running.took_s > SHORT_S or not self._slots[0].waiting):
            self._bell.ring()

    def _free_slots(self) -> None:
        """End what no slot has taken in time, and what goes on without its lease, from the thread of the heartbeat."""
        now = time.monotonic()
        ended = [r for some in self._slots for r in some.take_back(now - UNSTARTED_S) if r.give_back("not_started")]
        for running in self.held():
            if running.lost_at is not None and running.lost_at < now - UNLEASED_S and running.let_go():
                logger.warning("%r goes on without its lease: other jobs get its slot", running)
                if running.taken_at is not None:
                    self._slots_for(running).abandon(running)
                ended.append(running)
        if ended:
            self._done.extend(ended)
            self._bell.ring()

    def _linger(self) -> None:
        """Let short handlers that wait for a slot run first, so that one write has the ends of many."""
        if self._pace.short and (waiting := self._slots[0].waiting) and len(self._ended) < waiting:
            self._lingering = True
            self._bell.sleep(LINGER_S, lambda: self._woken or not self._slots[0].waiting)
            self._lingering = False
            self._gather(0.0)

    def _gather(self, wait_s: float) -> bool:
        """Collect attempts that have ended, waiting up to `wait_s` for the first; return whether there was any."""
        if wait_s > 0 and self._bell.sleep(wait_s, lambda: self._done or self._woken, self._watch):
            self._woken = True
        woken = self._woken
        if woken:
            self._woken = False  # before the look: a call of `wake` from here on leads to another one
            self._due_at = self._ledger.store.now()
        for turn in self._turns.take() if self._turns else ():
            self._start(self._settle(turn))
        if self._effects and (written := self._effects.take()):
            self._settle(written)
        n, seconds = 0, 0.0
        for _ in range(len(self._done)):
            running = self._done.popleft()
            self._end(running)
            if running.taken_at is not None:
                n, seconds = n + 1, seconds + running.took_s
        if n:
            self._pace.ran(n, seconds)
        return woken or bool(self._ended)

    def _end(self, running: HeldAttempt) -> None:
        self._ended.append(running)  # first: a heartbeat that comes in between sees it twice, and not never
        self._held.pop(id(running), None)

    def _room(self) -> int:
        """Return how many attempts to claim; those that are about to be written have left their slots."""
        if self._ended and self._executor == "inline":
            return 0  # one attempt after the other: a planned crash at the end of one does not hold the next
        late = time.monotonic() - AHEAD_S
        oldest = islice(self._held.values(), self._concurrency)
        stalled = sum([running.taken_at is not None and running.taken_at < late for running in oldest])
        if self._effects and len(self._effects.ended) > self._batch_max:
            return 0  # what they wait for must not fill the memory
        elsewhere = self._turns.room if self._turns else 0
        hold = self._pace.hold(stalled, shared=self._turns is not None)
        room = hold - len(self._held) - elsewhere
        if not self._pace.short and room * 2 < hold and self._slots[0].waiting >= self._concurrency:
            return 0  # a claim of few costs nearly as much as one of many, and each slot has its next attempt
        return max(0, room)

    def _lease(self, n: int) -> Lease:
        return Lease(
            owner=self.worker_id, seconds=LEASE_S, n=n, queues=self._queues,
            seconds_by_operation=self._ledger.lease_seconds(), payload_max=PAYLOAD_MAX,
            durable=bool(self._ended) or self._ledger.listening or self._executor not in ("threads", "inline"),
        )  # fmt: skip

    def _wait_s(self, room: int) -> float:
        """Return how long to sleep: until the next job is due, the next timeout, or the next poll."""
        waits = [self._poll_s]
        if self._due_at is not None and room > 0:
            waits.append((self._due_at - self._ledger.store.now()).total_seconds())
        if self._timed:
            now = time.monotonic()
            waits += [deadline - now for running in self._held.values() if (deadline := running.deadline) is not None]
        return max(0.001, min(waits))

    @property
    def _apart(self) -> bool:
        """Whether ends with effects are written apart: by one writer only once an effect has waited."""
        store = self._ledger.store
        return self._executor != "inline" and (store.effects_wait or not store.one_writer)

    @property
    def _timed(self) -> bool:
        """Whether any handler has a timeout: otherwise no attempt has to be looked at."""
        return any(operation.timeout_s is not None for operation in self._ledger.operations)

    def _time_out(self) -> None:
        now = time.monotonic()
        for running in list(self._held.values()) if self._timed else ():
            deadline = running.deadline  # once: its handler may end it at any moment
            if deadline is not None and now >= deadline and running.time_out():
                self._end(running)
                self._slots_for(running).abandon(running)
        if not self._stopping and any(some.worn_out(self._abandoned_max) for some in self._slots):
            self.recycle = True

    def _next_due(self, *, after_empty: bool = False) -> datetime | None:
        """Return when to look for work: when the next job is due, or None to sleep until woken or until a poll."""
        now = self._ledger.store.now()
        try:
            with self._ledger.store.glance() as reading:
                due_at, behind = reading.jobs.outlook(self._queues)
            if behind:
                from holdfast.engine.above import catch_up  # noqa: PLC0415 - most ledgers need none of it

                if catch_up(self._ledger, actor=self.worker_id):
                    return now
        except StoreError as error:
            self._pause_for(error)
            return now
        if after_empty and due_at is not None and due_at <= now:
            # A job is due and none was claimed: another worker is claiming it.
            return now + timedelta(seconds=CONTENDED_S)
        return due_at

    # -- starting and stopping ----------------------------------------------------------------------------------------

    def _plain_slots(self) -> Slots:
        if self._executor == "threads":
            return ThreadSlots(self._concurrency, self._on_end)
        from holdfast.engine.worker.processes import slots_of  # noqa: PLC0415 - only with such an executor

        return slots_of(self._executor, self._concurrency, self._on_end)

    def _slots_for(self, running: HeldAttempt) -> Slots:
        """Return where an attempt runs: suspects and `async def` handlers have slots of their own."""
        if self._executor == "inline" or not (running.is_async or running.record.suspect):
            return self._slots[0]
        from holdfast.engine.worker.other_slots import other_slots  # noqa: PLC0415 - only for such attempts

        return other_slots(self._slots, running, self._executor, self._on_end)

    def _close_slots(self) -> None:
        for some in self._slots:
            some.close()
        for each in (self._turns, self._effects):
            if each:
                each.close()

    def _recover_first(self) -> RecoveryReport | None:
        try:
            report = recover(self._ledger, actor=self.worker_id)
            self._register()
        except StoreError as error:
            logger.warning("recovery at the start failed; the reaper tries it again: %s", error)
            return None
        if report.recovered:
            logger.info("recovered %s interrupted attempts", report.recovered)
        return report

    def _drain(self) -> None:
        """Wait for what runs, up to `drain_s`, then give the rest back, excused."""
        if self._turns:
            self._turns.close()
            self._gather(0.0)
        for running in self.held():
            running.worker_stopping = True
            running.stop()
        deadline = time.monotonic() + self._drain_s
        while self._busy and not self._at_once and time.monotonic() < deadline:
            self._write(0)
            self._gather(min(0.1, max(0.001, deadline - time.monotonic())))
            self._time_out()
        for running in list(self._held.values()):
            if running.give_back("worker_stopped"):
                self._end(running)
        deadline = time.monotonic() + FLUSH_S
        while self._busy and time.monotonic() < deadline:
            self._write(0)
            if self._held or self._effects:  # it ended just now, and its slot is about to hand it over
                self._gather(0.01)

    def _let_go(self) -> None:
        """Drop attempts that could not be given back: the database is unreachable, and their leases will expire."""
        for running in self.held():
            running.let_go()

    def _register(self) -> None:
        names = sorted(f"{operation.name}@{operation.version}" for operation in self._ledger.operations)
        if time.monotonic() - self._seen_at < min(SEEN_S, self._poll_s * 5) and self._seen_at:
            return
        first, self._seen_at = not self._seen_at, time.monotonic()
        with self._ledger.store.transaction() as transaction:
            transaction.workers.seen(self.worker_id, self._queues, names, self._concurrency)
            if first:  # a worker that ends at once has no keeper that would do it
                transaction.counts.fold()

    def _sign_off(self, ended_by: type[BaseException] | None, *_: object) -> None:
        if ended_by is not None and issubclass(ended_by, Crash | StoreError):
            return
        try:
            with self._ledger.store.transaction() as transaction:
                transaction.workers.stopped(self.worker_id)
        except StoreError as error:
            logger.warning("the worker could not be marked as stopped: %s", error)
