"""The processes of a simulation: each has its own ledger object and a clock that may be off, and can crash at a point.

Invariants: every choice comes from the randomness of the simulation, so that the same seed gives the same run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from itertools import count
from random import Random

from holdfast.engine.ledger import Ledger
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.world import BETWEEN, World
from holdfast.testing import VirtualClock

LEASE_S = 30.0
SKEWS_S = (0, 0, 0, -2, 2, LEASE_S)
DEATH, APART = 0.03, 0.2  # probabilities: of a crash at each point; of two transactions for one end


class SimulatedProcess:
    """One process: its own ledger object, and the attempts that it holds in memory."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.held: list[HeldAttempt] = []


class SimulatedFleet(ABC):
    """Some processes that work on one ledger, on one virtual clock."""

    def __init__(self, clock: VirtualClock, seed: int) -> None:
        self._clock = clock
        self._chance = Random(seed)  # noqa: S311 - each run of a seed must be the same
        self._deadly = True
        self._names = count(1)
        self._processes: list[SimulatedProcess] = []

    @abstractmethod
    def _ledger_in(self, world: World) -> Ledger:
        """Return the ledger object of a new process."""

    @abstractmethod
    def _reach(self, point: str) -> None:
        """Pass a point, or raise Crash there."""

    def _start_process(self) -> SimulatedProcess:
        name = f"process-{next(self._names)}"
        off = timedelta(seconds=self._chance.choice(SKEWS_S))
        world = World(
            clock=lambda: self._clock() + off,
            new_name=lambda: f"{name}-{next(self._names)}",
            randomness=Random(self._chance.random()),  # noqa: S311 - as above
            monotonic=self._clock.monotonic,
            reach=self._reach,
            planned=lambda point: self._deadly and point == BETWEEN and self._chance.random() < APART,
        )
        return SimulatedProcess(name, self._ledger_in(world))

    def _replace(self, process: SimulatedProcess) -> None:
        """Drop a process with its memory, and start another."""
        process.ledger.close()
        self._processes[self._processes.index(process)] = self._start_process()
