"""Simulates an application: its own handlers on the real engine, under a schedule of faults that a seed decides.

Several processes share one ledger on a virtual clock. They submit the given calls, again and again under the same keys;
claim, run, beat, finish and recover; crash at any crash point of the engine, lose answers, wait for a slow disk, and
have clocks that differ and jump. Then all processes are replaced, all jobs run to their end, and the promises are
checked: those of the ledger, and the application's own.

Invariants: a schedule is a seed, a number of steps and the steps that are left out; the same schedule does the same
every time, because each step has its own random numbers; nothing is written to the application's own database.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random

import msgspec

from holdfast.audit.check.runner import check
from holdfast.core.errors import IdempotencyConflictError, InputError
from holdfast.core.machines import JobState
from holdfast.engine.ledger import Ledger
from holdfast.engine.operations import Call
from holdfast.engine.world import World
from holdfast.model.processes import LEASE_S, SimulatedFleet, SimulatedProcess
from holdfast.testing import VirtualClock

STEPS = 60
PROCESSES = 3
SLOW = 0.05  # probability of a slow disk at a point
JUMPS_S = (-LEASE_S, -1.0, 1.0, LEASE_S)
ROUNDS_MAX = 200
SHRINK_MAX = 100  # runs that shrinking a schedule may take
ACTIONS = {
    "submit": 8, "claim": 8, "run": 10, "finish": 10, "beat": 2, "recover": 4, "time": 6, "jump": 1, "crash": 1,
}  # fmt: skip

Check = Callable[[Ledger], object]


class Schedule(msgspec.Struct, frozen=True):
    """A run to carry out: its seed, the number of its steps, and which of them are left out."""

    seed: int
    steps: int = STEPS
    left_out: tuple[int, ...] = ()


class SimulatedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a schedule: the promise that was broken, if one was, the steps, and the crashes by their points."""

    schedule: Schedule
    broken: str | None
    story: tuple[str, ...]
    crashes: dict[str, int]
    jobs: int


class _BrokenError(Exception):
    """A promise was broken."""


class Simulator:
    """Runs schedules of one application. `setup` makes its tables; `promise` raises if one of its own is broken."""

    def __init__(
        self, app: Ledger, calls: Sequence[Call], *, setup: Check | None = None, promise: Check | None = None
    ) -> None:
        if not calls:
            raise InputError("There is nothing to submit.", next_step="Give at least one call.")
        for call in calls:
            _require_fit(app, call)
        self._app, self._calls, self._promise = app, list(calls), promise
        self._directory = tempfile.TemporaryDirectory(prefix="holdfast-simulate-")
        self._template = Path(self._directory.name) / "template.db"
        with Ledger(str(self._template), app.operations, world=World(clock=VirtualClock())) as ledger:
            with ledger.store.transaction():
                pass
            if setup is not None:
                with app.bound_to(str(self._template), world=World(clock=VirtualClock())) as bound:
                    setup(bound)

    def close(self) -> None:
        """Remove the ledgers of the simulation."""
        self._directory.cleanup()

    def run(self, schedule: Schedule) -> SimulatedRun:
        """Carry a schedule out on a ledger of its own."""
        path = Path(self._directory.name) / "run.db"
        for old in path.parent.glob("run.db*"):
            old.unlink()
        shutil.copyfile(self._template, path)
        return _Run(self._app, str(path), self._calls, schedule, self._promise).carried_out()

    def first_broken(self, seeds: Iterable[int], steps: int = STEPS) -> tuple[int, SimulatedRun | None, Counter[str]]:
        """Run seeds until a promise is broken; return how many ran, that run if there is one, and the crashes."""
        done, crashes = 0, Counter[str]()
        for seed in seeds:
            found = self.run(Schedule(seed, steps))
            done += 1
            crashes += Counter(found.crashes)
            if found.broken is not None:
                return done, found, crashes
        return done, None, crashes

    def shrunk(self, broken: SimulatedRun) -> SimulatedRun:
        """Return a run with as few steps as can be found that breaks the same promise."""
        best, tries = broken, 0
        while tries < SHRINK_MAX:
            kept = [n for n in range(best.schedule.steps) if n not in best.schedule.left_out]
            size = max(len(kept) // 2, 1)
            smaller = None
            while size and smaller is None and tries < SHRINK_MAX:
                for first in range(0, len(kept), size):
                    tries += 1
                    fewer = tuple(sorted({*best.schedule.left_out, *kept[first : first + size]}))
                    found = self.run(msgspec.structs.replace(best.schedule, left_out=fewer))
                    if found.broken is not None and _kind(found.broken) == _kind(broken.broken or ""):
                        smaller = found
                        break
                    if tries >= SHRINK_MAX:
                        break
                size //= 2
            if smaller is None:
                break
            best = smaller
        return best


def _require_fit(app: Ledger, call: Call) -> None:
    """Raise InputError for a call that no handler of the application would run."""
    operation = app.operations.get(call.operation, call.version)
    if operation is None:
        raise InputError(
            f"The ledger has no operation {call.operation!r} that runs version {call.version or 'any'}.",
            next_step=f"Its operations: {', '.join(sorted({each.name for each in app.operations}))}.",
            context={"operation": call.operation},
        )
    operation.checked(call.payload)


def _kind(broken: str) -> str:
    return broken.partition(":")[0]


class _Run(SimulatedFleet):
    """One schedule, to be carried out once."""

    def __init__(self, app: Ledger, url: str, calls: Sequence[Call], schedule: Schedule, promise: Check | None) -> None:
        super().__init__(VirtualClock(), schedule.seed)
        self._app, self._url, self._calls, self._schedule, self._promise = app, url, calls, schedule, promise
        self._answered: dict[tuple[str, str], int] = {}
        self._processes = [self._start_process() for _ in range(PROCESSES)]

    def carried_out(self) -> SimulatedRun:
        broken = None
        with self._app.bound_to(self._url, world=World(clock=self._clock, monotonic=self._clock.monotonic)):
            try:
                for number in range(self._schedule.steps):
                    if number not in self._schedule.left_out:
                        # Each step has its own numbers: a step that is left out does not change what others draw.
                        self._chance = Random(f"{self._schedule.seed}/{number}")  # noqa: S311 - as in SimulatedFleet
                        self._step(self._chance.choice(self._processes), ACTIONS, number)
                self._settle()
                self._check()
            except _BrokenError as error:
                broken = str(error)
            finally:
                with self._processes[0].ledger.store.reading() as reading:
                    jobs = sum(count.n for count in reading.counts.current())
                for process in self._processes:
                    process.ledger.close()
        return SimulatedRun(
            schedule=self._schedule, broken=broken, story=tuple(self.story), crashes=dict(self.crashes), jobs=jobs
        )

    # -- steps --------------------------------------------------------------------------------------------------------

    def _submit(self, process: SimulatedProcess) -> None:
        number = self._chance.randrange(len(self._calls))
        call = self._calls[number]
        keyed = call if call.key else call.keyed("simulation", f"call-{number}")
        self._record(process, f"submits {keyed.operation} {keyed.client}/{keyed.key}")
        try:
            receipt = process.ledger.submit(keyed)
        except IdempotencyConflictError:
            return
        pair = keyed.client, keyed.key or ""
        if self._answered.setdefault(pair, receipt.job_id) != receipt.job_id:
            raise _BrokenError(f"one key, one job: {pair} was answered with {receipt.job_id} and another job")

    def _jump(self, process: SimulatedProcess) -> None:
        seconds = self._chance.choice(JUMPS_S)
        self._clock.jump_to(self._clock.after(seconds))
        self._record(process, f"sees the clock jump by {seconds:g} s")

    # -- processes ----------------------------------------------------------------------------------------------------

    def _ledger_in(self, world: World) -> Ledger:
        return Ledger(self._url, self._app.operations, world=world)

    def _reach(self, point: str) -> None:
        if self._may_crash and self._chance.random() < SLOW:
            self._clock.advance(self._chance.choice((0.5, LEASE_S + 1)))  # the disk is slow
        super()._reach(point)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Replace all processes, and go on without faults until no job is pending or running."""
        self._chance = Random(f"{self._schedule.seed}/end")  # noqa: S311 - as in SimulatedFleet
        self._replace_all()
        for number in range(1, ROUNDS_MAX + 1):
            self._clock.advance(LEASE_S * 4 * number)  # longer and longer: a retry may be due in a week
            self._work_off()
            if not self._open():
                return
        raise _BrokenError(f"every job ends: after {ROUNDS_MAX} rounds {self._open()} are pending or running")

    def _open(self) -> int:
        with self._processes[0].ledger.store.reading() as reading:
            counts = reading.counts.current()
        return sum(count.n for count in counts if count.state in (JobState.PENDING, JobState.RUNNING))

    def _check(self) -> None:
        ledger = self._processes[0].ledger
        for pair, job_id in self._answered.items():
            job = ledger.job(job_id)
            if (job.client, job.key) != pair:
                raise _BrokenError(f"an answer stays true: {pair} was answered with {job_id}, which is another job")
        violations = check(ledger.store).violations
        if violations:
            raise _BrokenError(f"the ledger is whole: {violations[0]}")
        if self._promise is not None:
            try:
                self._promise(self._app)
            except Exception as error:
                raise _BrokenError(f"a promise of the application: {type(error).__name__}: {error}") from error
