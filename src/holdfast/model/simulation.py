"""Simulates the real engine: several processes on one ledger, random steps, and crashes at any crash point.

A simulation has one seed. Clients submit, submit again, and send another payload under the same key; workers claim,
run, beat and finish; reapers recover, operators rule, retention slims, clocks differ, and a process may crash at any
crash point of the engine or between two steps. At the end all processes are replaced, all jobs run to their end, and
the effects are counted.

Invariants: time, random choices and crashes come from the seed alone, so a seed that fails fails again. A simulation
checks the promises: a job id that was returned stays valid, each job that succeeded has one effect and no other job has
one, a follow-up is submitted once, no job waits for ever, and `check` finds no violation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

from holdfast.audit.check.runner import check_jobs
from holdfast.core.errors import IdempotencyConflictError, RefusedError
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.engine.ledger import Ledger
from holdfast.engine.operations import Call
from holdfast.engine.upkeep.retention import Retention, gc
from holdfast.engine.worker.execution import Execution
from holdfast.engine.worker.signals import Quarantine, RetryAfter, Snooze
from holdfast.engine.world import World
from holdfast.model.processes import LEASE_S, SimulatedFleet, SimulatedProcess
from holdfast.store.effects import staged
from holdfast.store.requests import ENGINE
from holdfast.testing import FAULTS, VirtualClock

FOLLOWED = 0.3
ACTIONS = {
    "submit": 6, "claim": 8, "run": 10, "finish": 10, "beat": 2, "give_back": 2, "recover": 4, "rule": 2, "slim": 1,
    "time": 6, "crash": 1,
}  # fmt: skip
FATES = {"returns": 15, "retries": 3, "snoozes": 1, "is hopeless": 1}
TABLE = "CREATE TABLE IF NOT EXISTS simulated_effects (job BIGINT, client TEXT, name TEXT, follows INTEGER)"
INSERT = "INSERT INTO simulated_effects (job, client, name, follows) VALUES (:job, :client, :name, :follows)"
SELECT = "SELECT client, job, name, follows FROM simulated_effects"
AT_ONCE = Retention(finished_s=0.0, quarantined_s=0.0)


class Flaw(StrEnum):
    """A wrong way to use the ledger, which a simulation must notice."""

    EFFECT_AT_ONCE = "the handler applies its effect itself, before the commit boundary"
    NO_KEY = "the client submits again without a key"


class Broken(AssertionError):
    """A promise was broken. The message has the seed, the promise, and the steps of the simulation."""

    def __init__(self, seed: int, what: str, story: list[str]) -> None:
        super().__init__("\n".join([f"seed {seed}: {what}", *story]))
        self.seed, self.what, self.story = seed, what, story


class SimulationReport(NamedTuple):
    """The result of some seeds: crashes at each crash point, keys that two processes used, steps of the last seed."""

    crashes: Counter[str]
    shared: int
    story: list[str]

    @property
    def faults(self) -> dict[str, int]:
        """How often each fault happened, by the names that the model of the write-ahead log gives them."""
        return {name: self.crashes[point] for name, point in FAULTS.items()} | {"ConcurrentClients": self.shared}


def simulate(url: str, seeds: Iterable[int], *, flaw: Flaw | None = None) -> SimulationReport:
    """Run these seeds one after the other on one ledger. Raise Broken if a promise is broken."""
    clock = VirtualClock()
    crashes, shared, story = Counter[str](), 0, list[str]()
    with Ledger(url, world=World(clock=clock)) as ledger, ledger.store.transaction() as transaction:
        transaction.execute(TABLE)
    for seed in seeds:
        simulation = Simulation(url, seed, clock, flaw=flaw)
        simulation.run()
        crashes, story = crashes + simulation.crashes, simulation.story
        shared += sum(len(processes) > 1 for processes in simulation.users.values())
    return SimulationReport(crashes, shared, story)


class Simulation(SimulatedFleet):
    """One seed, to be run once. Several simulations can use one ledger, one after the other: each has its own keys."""

    def __init__(
        self, url: str, seed: int, clock: VirtualClock, *, processes: int = 3, keys: int = 3, flaw: Flaw | None = None
    ) -> None:
        super().__init__(clock, seed)
        self.seed = seed
        self._url, self._flaw = url, flaw
        self._client = f"client-{seed}-{clock.monotonic():g}"
        self._keys = [f"key-{number}" for number in range(keys)]
        self._answered: dict[str, int] = {}  # key → job id that was returned to the client
        self.users: dict[str, set[str]] = {key: set() for key in self._keys}  # the processes that submitted each key
        self._processes = [self._start_process() for _ in range(processes)]

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self, steps: int = 60) -> None:
        """Take random steps, run all jobs to their end, and check the promises. Raise Broken if one is broken."""
        for number in range(steps):
            self._step(self._chance.choice(self._processes), ACTIONS, number)
        self._settle()
        self._check_promises()
        for process in self._processes:
            process.ledger.close()

    def _settle(self) -> None:
        """Replace all processes, and go on without crashes until no job is pending or running."""
        self._replace_all()
        for _ in range(100):
            self._clock.advance(LEASE_S * 2)
            self._work_off()
            if not any(job.state in (JobState.PENDING, JobState.RUNNING) for job in self._jobs().values()):
                return
        self._broken("a job is still pending or running after 100 rounds")

    # -- actions ------------------------------------------------------------------------------------------------------

    def _submit(self, process: SimulatedProcess) -> None:
        key = self._chance.choice(self._keys)
        self.users[key].add(process.name)
        payload = {"name": key, "variant": self._chance.choice((0, 0, 0, 1))}
        self._record(process, f"submits {key}, variant {payload['variant']}")
        try:
            receipt = process.ledger.submit(
                "simulated", payload, client=self._client, key=None if self._flaw is Flaw.NO_KEY else key
            )
        except IdempotencyConflictError:
            return  # another payload under the same key is refused
        if self._answered.setdefault(key, receipt.job_id) != receipt.job_id:
            self._broken(f"{key} was answered with two jobs")

    def _give_back(self, process: SimulatedProcess) -> None:
        waiting = [running for running in process.held if not running.ended]
        if waiting and waiting[0].give_back("stopping"):
            self._record(process, f"gives {waiting[0].job.job_id} back")

    def _rule(self, process: SimulatedProcess) -> None:
        """Let an operator rule on a job; the ruling may be refused."""
        jobs = list(self._jobs().values())
        if not jobs:
            return
        job = self._chance.choice(jobs)
        ruling = self._chance.choice(("cancel", "retry", "quarantine"))
        self._record(process, f"would {ruling} {job.job_id}")
        with suppress(RefusedError):
            if ruling == "quarantine":
                process.ledger.quarantine(job.job_id, "simulated")
            else:
                getattr(process.ledger, ruling)(job.job_id)

    def _slim(self, process: SimulatedProcess) -> None:
        report = gc(process.ledger.store, AT_ONCE, who=process.name)
        self._record(process, f"slims {report.finished + report.quarantined}")

    # -- processes ----------------------------------------------------------------------------------------------------

    def _ledger_in(self, world: World) -> Ledger:
        ledger = Ledger(self._url, world=world)

        @ledger.operation("simulated", lease_s=LEASE_S, max_attempts=3)
        def simulated(run: Execution, name: str, variant: int = 0, *, follows_on: bool = False) -> str:
            return self._handle_call(ledger, run, name, may_follow=variant == 0 and not follows_on)

        return ledger

    def _handle_call(self, ledger: Ledger, run: Execution, name: str, *, may_follow: bool) -> str:
        fate = self._chance.choices(tuple(FATES), tuple(FATES.values()))[0] if self._may_crash else "returns"
        match fate:
            case "retries":
                raise RetryAfter(self._chance.choice((0.0, LEASE_S)), "not now")
            case "snoozes":
                raise Snooze(1.0, "not yet")
            case "is hopeless":
                raise Quarantine("hopeless")
        follows = int(may_follow and self._chance.random() < FOLLOWED)
        values = {"job": run.job.job_id, "client": self._client, "name": name, "follows": follows}
        if self._flaw is Flaw.EFFECT_AT_ONCE:
            ledger.perform(lambda transaction: transaction.apply([[staged(INSERT, values, 1)]]))
        else:
            run.effect(INSERT, values, rows=1)
        if follows:
            run.after_commit(Call(operation="simulated", payload={"name": f"{name}, then", "follows_on": True}))
        return name

    # -- the promises -------------------------------------------------------------------------------------------------

    def _jobs(self) -> dict[int, Job]:
        """Return the jobs that this simulation has made, follow-ups included, by their ids."""
        with self._processes[0].ledger.store.reading() as reading:
            made = [job for job in reading.lists.jobs(limit=1000) if job.client == self._client]
            followups = reading.jobs.by_key([_followup(job) for job in made])
        return {job.job_id: job for job in (*made, *followups.values())}

    def _check_promises(self) -> None:
        """Compare the ledger and the table of effects with the promises."""
        jobs = self._jobs()
        keys = {(job.client, job.key) for job in jobs.values()}
        with self._processes[0].ledger.store.reading() as reading:
            effects = [row[1:] for row in reading.execute(SELECT) if row[0] == self._client]
            violations = check_jobs(reading, jobs)
        if violations:
            self._broken(f"{violations[0]}, and {len(violations) - 1} more")
        for key, job_id in self._answered.items():
            if job_id not in jobs:
                self._broken(f"{key} was answered with job {job_id}, which does not exist")
        for job in jobs.values():
            happened = [follows for job_id, _, follows in effects if job_id == job.job_id]
            if len(happened) != (job.state is JobState.SUCCEEDED):
                self._broken(f"job {job.job_id} is {job.state} and has {len(happened)} effects")
            if (_followup(job) in keys) != any(happened):
                self._broken(
                    f"job {job.job_id} should have {sum(happened)} follow-ups, and has {int(_followup(job) in keys)}"
                )
        done = Counter(name for _, name, _ in effects)
        for name, times in done.items():
            if times > 1:
                self._broken(f"{name} was done {times} times")

    def _broken(self, what: str) -> None:
        raise Broken(self.seed, what, self.story)


def _followup(job: Job) -> tuple[str, str]:
    return ENGINE, f"{job.job_id}/1"
