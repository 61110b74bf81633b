"""The processes of a simulation: each has its own ledger object and a clock that may be off, and can crash at a point.

Invariants: every choice comes from the randomness of the simulation, so that the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from datetime import timedelta
from itertools import count
from random import Random

from holdfast.core.decide import Refused
from holdfast.engine.above import catch_up
from holdfast.engine.ledger import Ledger
from holdfast.engine.tasks import ClaimTask
from holdfast.engine.worker.async_slots import run_async
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.reaper import recover
from holdfast.engine.worker.unsuccessful import refused
from holdfast.engine.world import BETWEEN, Crash, World
from holdfast.store import Lease
from holdfast.testing import VirtualClock

LEASE_S = 30.0
SKEWS_S = (0, 0, 0, -2, 2, LEASE_S)
CRASH, APART = 0.03, 0.2  # probabilities: of a crash at each point; of two transactions for one end


class SimulatedProcess:
    """One process: its own ledger object, and the attempts that it holds in memory."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.held: list[HeldAttempt] = []


class SimulatedFleet(ABC):
    """Some processes that work on one ledger, on one virtual clock. An action is a method `_NAME(process)`."""

    def __init__(self, clock: VirtualClock, seed: int) -> None:
        self.story: list[str] = []
        self.crashes = Counter[str]()  # by crash point
        self._clock = clock
        self._chance = Random(seed)  # noqa: S311 - each run of a seed must be the same
        self._may_crash = True
        self._names = count(1)
        self._processes: list[SimulatedProcess] = []

    @abstractmethod
    def _ledger_in(self, world: World) -> Ledger:
        """Return the ledger object of a new process."""

    def _reach(self, point: str) -> None:
        """Pass a point, or raise Crash there."""
        if self._may_crash and self._chance.random() < CRASH:
            raise Crash(point)

    def _start_process(self) -> SimulatedProcess:
        name = f"process-{next(self._names)}"
        off = timedelta(seconds=self._chance.choice(SKEWS_S))
        world = World(
            clock=lambda: self._clock() + off,
            new_name=lambda: f"{name}-{next(self._names)}",
            randomness=Random(self._chance.random()),  # noqa: S311 - as above
            monotonic=self._clock.monotonic,
            reach=self._reach,
            planned=lambda point: self._may_crash and point == BETWEEN and self._chance.random() < APART,
        )
        return SimulatedProcess(name, self._ledger_in(world))

    def _replace(self, process: SimulatedProcess) -> None:
        """Drop a process with its memory, and start another."""
        process.ledger.close()
        self._processes[self._processes.index(process)] = self._start_process()

    def _record(self, process: SimulatedProcess, what: str) -> None:
        self.story.append(f"{self._clock.monotonic():>9.1f} {process.name:<11} {what}")

    def _step(self, process: SimulatedProcess, weights: dict[str, int], number: int) -> None:
        """Let a process take one action, chosen by the weights; if it crashes, replace it."""
        [action] = self._chance.choices(tuple(weights), tuple(weights.values()))
        try:
            getattr(self, f"_{action}")(process)
        except Crash as crash:
            self._record(process, f"crashes at {crash.point} (step {number})")
            self.crashes[crash.point] += 1
            self._replace(process)

    def _replace_all(self) -> None:
        """Replace all processes; from now on none crashes."""
        self._may_crash = False
        for process in list(self._processes):
            self._replace(process)

    def _work_off(self) -> None:
        """Let each process recover, and claim and end what is due."""
        for process in self._processes:
            self._recover(process)
            self._claim(process, n=100)
            while process.held:
                self._run(process)
                self._finish(process)

    # -- actions ------------------------------------------------------------------------------------------------------

    def _claim(self, process: SimulatedProcess, n: int = 2) -> None:
        queues = tuple(sorted({operation.declared.queue for operation in process.ledger.operations}))
        task = ClaimTask(Lease(owner=process.name, seconds=LEASE_S, n=n, queues=queues))
        process.ledger.perform_tasks([task])
        claimed = [HeldAttempt(process.ledger, attempt) for attempt in task.result()]
        process.held += claimed
        if claimed:
            self._record(process, f"claims {[held.job.job_id for held in claimed]}")
        else:
            self._look(process, queues)

    def _look(self, process: SimulatedProcess, queues: tuple[str, ...]) -> None:
        """Learn of limits, and move the jobs that no claim moves, as an idle worker does."""
        with process.ledger.store.reading() as reading:
            _, behind = reading.jobs.outlook(queues)
        if behind:
            catch_up(process.ledger, actor=process.name)

    def _run(self, process: SimulatedProcess) -> None:
        waiting = [held for held in process.held if not held.ended]
        if waiting:
            held = self._chance.choice(waiting)
            if held.is_async:
                asyncio.run(run_async(held))
            else:
                held.run()
            self._record(process, f"runs {held.job.operation} {held.job.job_id}")

    def _finish(self, process: SimulatedProcess) -> None:
        """Write how some attempts ended, in one transaction, as a worker does."""
        ended = [held for held in process.held if held.ended]
        tasks = [held.task for held in ended if held.task is not None]
        if tasks:
            process.ledger.perform_tasks(tasks)
        for held in ended:
            task = held.task
            if task is not None and task.error is not None and refused(held, task.error):
                continue
            code = f": {task.outcome.code}" if task is not None and isinstance(task.outcome, Refused) else ""
            self._record(process, f"ends {held.job.job_id}{code}")
            process.held.remove(held)

    def _beat(self, process: SimulatedProcess) -> None:
        leases = [(held.record.execution, LEASE_S) for held in process.held]
        if not leases:
            return
        at = process.ledger.store.now()
        kept = process.ledger.perform(lambda transaction: transaction.executions.extend_leases(leases))
        for held in process.held:
            if held.record.execution.exec_id in kept:
                held.extended(at + timedelta(seconds=LEASE_S))
        self._record(process, f"extends {len(kept)} of {len(leases)} leases")

    def _recover(self, process: SimulatedProcess) -> None:
        found = recover(process.ledger, actor=process.name).job_ids
        if found:
            self._record(process, f"recovers {list(found)}")

    def _time(self, process: SimulatedProcess) -> None:
        seconds = self._chance.choice((0.1, 1.0, LEASE_S / 2, LEASE_S + 1))
        self._clock.advance(seconds)
        self._record(process, f"waits {seconds:g} s")

    def _crash(self, process: SimulatedProcess) -> None:
        self._record(process, "crashes")
        self.crashes["rest"] += 1
        self._replace(process)
