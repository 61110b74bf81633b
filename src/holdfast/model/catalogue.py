"""Every run of a model with its expected outcome: the number of states, the promises kept, and what a flaw breaks.

Invariants: a run passes only if its outcome is exactly the one listed here, so a changed rule shows as a changed
number; a flaw that breaks nothing is an error.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.model import fleet, flow, grants, limits, log
from holdfast.model.checker import Graph, Kept, Model, explore, kept
from holdfast.model.fleet import Fleet
from holdfast.model.flow import Flow, Policy
from holdfast.model.grants import Grants
from holdfast.model.guards import GovernedGuards, JobGuards
from holdfast.model.limits import Limits
from holdfast.model.log import Log
from holdfast.model.published import published


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a run: states as TLC counts them, the invariant that broke and after how many steps, promises."""

    generated: int
    distinct: int
    broken: str | None = None
    steps: int | None = None
    promises: dict[str, Kept] = field(default_factory=dict)

    @property
    def fault(self) -> str | None:
        """Return the invariant that broke, or the promise that is never kept, or None."""
        return self.broken or next((name for name, kept in self.promises.items() if kept is Kept.NEVER), None)

    @property
    def sound(self) -> bool:
        """Tell whether everything holds."""
        return self.fault is None


@dataclass(frozen=True)
class Run:
    """One model to explore, and its expected outcome. A large one takes minutes."""

    name: str
    model: Callable[[], Model[Any]]
    expected: Outcome
    large: bool = False

    def explored(self) -> Graph[Any]:
        """Explore the model, and return the graph that `outcome` needs."""
        return explore(self.model(), keep_edges=bool(self.expected.promises))

    def outcome(self, graph: Graph[Any] | None = None) -> Outcome:
        """Return the outcome of the explored graph; without a graph, explore the model first."""
        graph = graph or self.explored()
        broken = graph.broken
        return Outcome(
            generated=graph.generated,
            distinct=graph.distinct,
            broken=broken.name if broken else None,
            steps=len(broken.trace) - 1 if broken else None,
            promises={name: kept(graph, name) for name in self.expected.promises} if broken is None else {},
        )


PROMISES_OF_THE_LOG = {
    # A recovery that is killed again and again never ends, in any implementation: these two need crashes to stop.
    "EventualRecovery": Kept.IF_FAULTS_END,
    "EventualCompletion": Kept.IF_FAULTS_END,
    "ProgressUnderCrash": Kept.ALWAYS,
}
PROMISES_OF_TWO_CLIENTS = (
    "NoStarvation of client 0",
    "NoStarvation of client 1",
    "EventualRecovery",
    "EventualCompletion",
    "ProgressUnderCrash",
)
PROMISES_OF_A_FLEET = {
    # Attempts are counted, so only an actor that crashes before each write can go on for ever.
    "every job ends or rests": Kept.IF_FAULTS_END,
    "a committed execution is finished": Kept.IF_FAULTS_END,
}
PROMISE_OF_LIMITS = "every job runs or is taken out"
PROMISES_OF_FLOW = {  # a worker that crashes between each look and its write lets no job go
    "what follows runs when the jobs before it allow it": Kept.IF_FAULTS_END,
    "what follows a cancelled job is cancelled": Kept.IF_FAULTS_END,
}


def _flawed_log(flaw: log.Flaw, broken: str, *, steps: int, generated: int, distinct: int) -> Run:
    return Run(
        f"log: {flaw}",
        lambda: Log(flaw=flaw).model(),
        Outcome(generated=generated, distinct=distinct, broken=broken, steps=steps),
    )


def _flawed_fleet(flaw: fleet.Flaw, broken: str, *, steps: int, generated: int, distinct: int) -> Run:
    return Run(
        f"fleet: {flaw}",
        lambda: Fleet(max_attempts=1, flaw=flaw).model(),
        Outcome(generated=generated, distinct=distinct, broken=broken, steps=steps),
    )


def _unkept_fleet(flaw: fleet.Flaw, *, generated: int, distinct: int) -> Run:
    return Run(
        f"fleet: {flaw}",
        lambda: Fleet(max_attempts=1, replay_attempts=0, excused=0, flaw=flaw).model(),
        Outcome(generated=generated, distinct=distinct, promises=dict.fromkeys(PROMISES_OF_A_FLEET, Kept.NEVER)),
    )


def _flawed_grants(flaw: grants.Flaw, broken: str, *, steps: int, generated: int, distinct: int) -> Run:
    return Run(
        f"grants: {flaw}",
        lambda: Grants(flaw=flaw).model(),
        Outcome(generated=generated, distinct=distinct, broken=broken, steps=steps),
    )


def _flawed_limits(flaw: limits.Flaw, broken: str, *, steps: int, generated: int, distinct: int) -> Run:
    return Run(
        f"limits: {flaw}",
        lambda: Limits(flaw=flaw).model(),
        Outcome(generated=generated, distinct=distinct, broken=broken, steps=steps),
    )


def _unkept_limits(flaw: limits.Flaw, *, generated: int, distinct: int) -> Run:
    return Run(
        f"limits: {flaw}",
        lambda: Limits(keys=ONE_KEY, queue=3, workers=1, flaw=flaw).model(),
        Outcome(generated=generated, distinct=distinct, promises={PROMISE_OF_LIMITS: Kept.NEVER}),
    )


def _flawed_flow(flaw: flow.Flaw, broken: str, *, steps: int, generated: int, distinct: int) -> Run:
    return Run(
        f"flow: {flaw}",
        lambda: Flow(policy=Policy.CANCEL, flaw=flaw).model(),
        Outcome(generated=generated, distinct=distinct, broken=broken, steps=steps),
    )


def _unkept_flow(flaw: flow.Flaw, policy: Policy, broken: str, *, generated: int, distinct: int) -> Run:
    return Run(
        f"flow: {flaw}",
        lambda: Flow(policy=policy, flaw=flaw).model(),
        Outcome(generated=generated, distinct=distinct, promises={broken: Kept.NEVER}),
    )


ONE_KEY = ("1", "1", "1")
FOLLOWED, CANCELLED = PROMISES_OF_FLOW
RUNS = (
    Run(
        "published log, 1 client",
        lambda: published(clients=1, entries=2, operations=2),
        Outcome(
            generated=70_713,
            distinct=26_856,
            promises=dict.fromkeys(
                ("EventualRecovery", "EventualCompletion", "ProgressUnderCrash", "NoStarvation of client 0"),
                Kept.ALWAYS,
            ),
        ),
    ),
    Run(
        "published log, 2 clients",
        lambda: published(clients=2, entries=2, operations=2),
        Outcome(generated=2_548_321, distinct=953_568),
        large=True,
    ),
    Run(
        "published log, 2 clients apart",
        lambda: published(clients=2, entries=2, operations=1, symmetric=False),
        Outcome(generated=141_230, distinct=53_037, promises=dict.fromkeys(PROMISES_OF_TWO_CLIENTS, Kept.ALWAYS)),
    ),
    Run(
        "published log: the entries of client 1 are not ended",
        lambda: published(clients=2, entries=1, operations=1, symmetric=False, starved=1),
        Outcome(
            generated=718,
            distinct=441,
            promises=dict.fromkeys(PROMISES_OF_TWO_CLIENTS, Kept.ALWAYS)
            | {"NoStarvation of client 1": Kept.NEVER, "EventualCompletion": Kept.NEVER},
        ),
    ),
    Run(
        "log: effects in the ledger's own database",
        lambda: Log().model(),
        Outcome(generated=211_233, distinct=62_267, promises=PROMISES_OF_THE_LOG),
    ),
    Run(
        "log: effects in another system that knows keys",
        lambda: Log(keyed_target=True, payloads=1).model(),
        Outcome(generated=87_545, distinct=30_147, promises=PROMISES_OF_THE_LOG),
    ),
    Run(
        "log: an entry whose work never succeeds",
        lambda: Log(poison=frozenset({0}), payloads=1).model(),
        Outcome(generated=33_385, distinct=11_035, promises=PROMISES_OF_THE_LOG),
    ),
    Run(
        "log: three keys",
        lambda: Log(keys=3, payloads=1, requests=1).model(),
        Outcome(generated=759_429, distinct=301_608, promises=PROMISES_OF_THE_LOG),
        large=True,
    ),
    _flawed_log(log.Flaw.KEY_NOT_LOOKED_UP, "one entry a key", steps=2, generated=27, distinct=25),
    _flawed_log(log.Flaw.CONFLICT_NOT_SEEN, "answered is recorded", steps=2, generated=29, distinct=25),
    _flawed_log(log.Flaw.ANSWER_BEFORE_WRITE, "answered is recorded", steps=2, generated=25, distinct=24),
    _flawed_log(log.Flaw.CLEANUP_DROPS_KEY, "answered is recorded", steps=4, generated=1_344, distinct=604),
    _flawed_log(log.Flaw.CLEANUP_TAKES_PENDING, "answered is recorded", steps=2, generated=35, distinct=30),
    _flawed_log(log.Flaw.MARK_APART, "one effect a key", steps=8, generated=47_920, distinct=16_791),
    Run(
        f"log: {log.Flaw.FAILURE_IS_FREE}",
        lambda: Log(poison=frozenset({0}), payloads=1, flaw=log.Flaw.FAILURE_IS_FREE).model(),
        Outcome(
            generated=10_933,
            distinct=4_443,
            promises=PROMISES_OF_THE_LOG | {"EventualRecovery": Kept.NEVER, "EventualCompletion": Kept.NEVER},
        ),
    ),
    Run(
        "fleet: two workers, a reaper, an operator",
        lambda: Fleet().model(),
        Outcome(generated=804_077, distinct=146_876),
    ),
    Run(
        "fleet: no job is given back",
        lambda: Fleet(excused=0).model(),
        Outcome(generated=128_481, distinct=24_100, promises=PROMISES_OF_A_FLEET),
    ),
    Run(
        "fleet: a job is released",
        lambda: Fleet(max_attempts=1, replay_attempts=0, releases=1).model(),
        Outcome(generated=227_804, distinct=42_100),
    ),
    Run(
        "fleet: two reapers, two operators",
        lambda: Fleet(workers=1, reapers=2, operators=2, lease=1, max_attempts=1, excused=0, releases=1).model(),
        Outcome(generated=400_171, distinct=70_957),
    ),
    Run(
        "fleet: three workers",
        lambda: Fleet(workers=3).model(),
        Outcome(generated=8_239_267, distinct=1_124_697),
        large=True,
    ),
    Run(
        "fleet: two jobs",
        lambda: Fleet(jobs=2, max_attempts=1, excused=0).model(),
        Outcome(generated=8_727_723, distinct=1_371_625),
        large=True,
    ),
    Run(
        "fleet: three workers, and a job is released",
        lambda: Fleet(workers=3, releases=1).model(),
        Outcome(generated=63_148_822, distinct=8_535_711),
        large=True,
    ),
    Run("grants: two jobs", lambda: Grants().model(), Outcome(generated=52_829, distinct=13_889)),
    Run(
        "grants: two clerks",
        lambda: Grants(jobs=1, clerks=2).model(),
        Outcome(generated=104_571, distinct=22_017),
    ),
    Run(
        "grants: three grants",
        lambda: Grants(grants=3).model(),
        Outcome(generated=4_109_053, distinct=931_457),
        large=True,
    ),
    Run(
        "guards: a job, its workers, a reaper, an operator",
        lambda: JobGuards().model(),
        Outcome(generated=77_866, distinct=25_170),
    ),
    Run(
        "guards: grants, a switch, a value",
        lambda: GovernedGuards().model(),
        Outcome(generated=416, distinct=212),
    ),
    _flawed_fleet(fleet.Flaw.CLAIM_UNMATCHED, "one execution is open", steps=4, generated=81, distinct=44),
    _flawed_fleet(
        fleet.Flaw.RULING_UNMATCHED, "a job runs while an execution is open", steps=4, generated=157, distinct=90
    ),
    _flawed_fleet(
        fleet.Flaw.FINISH_UNMATCHED,
        "a move starts from the state of its row",
        steps=10,
        generated=8_267,
        distinct=2_598,
    ),
    _flawed_fleet(
        fleet.Flaw.NO_FENCE,
        "an effect is of the execution that committed",
        steps=12,
        generated=20_992,
        distinct=5_654,
    ),
    _flawed_fleet(fleet.Flaw.LEASE_UNCHECKED, "a lost lease changes nothing", steps=6, generated=1_052, distinct=412),
    _flawed_fleet(fleet.Flaw.HASTY_REAPER, "a live lease is not taken", steps=4, generated=160, distinct=94),
    _flawed_fleet(
        fleet.Flaw.BLIND_REAPER,
        "a committed job has an effect, and no other job has one",
        steps=8,
        generated=3_161,
        distinct=971,
    ),
    _flawed_fleet(
        fleet.Flaw.EFFECT_FIRST,
        "a committed job has an effect, and no other job has one",
        steps=3,
        generated=42,
        distinct=22,
    ),
    _flawed_fleet(
        fleet.Flaw.LATE_FINISH,
        "a committed job has an effect, and no other job has one",
        steps=5,
        generated=431,
        distinct=218,
    ),
    _flawed_fleet(fleet.Flaw.TORN_WRITE, "a job runs while an execution is open", steps=4, generated=127, distinct=72),
    _flawed_fleet(fleet.Flaw.UNCOUNTED, "every attempt is counted", steps=2, generated=10, distinct=7),
    _flawed_fleet(
        fleet.Flaw.NO_BUDGET, "the attempts stay within the budget", steps=15, generated=63_519, distinct=15_979
    ),
    _flawed_fleet(
        fleet.Flaw.NO_END,
        "a job without attempts left does not stay failed",
        steps=12,
        generated=19_882,
        distinct=5_349,
    ),
    _unkept_fleet(fleet.Flaw.IDLE_REAPER, generated=2_939, distinct=609),
    _unkept_fleet(fleet.Flaw.HEART_ALONE, generated=3_371, distinct=663),
    _flawed_grants(
        grants.Flaw.SELF_APPROVAL,
        "a grant is approved by another person than requested it",
        steps=3,
        generated=70,
        distinct=65,
    ),
    _flawed_grants(
        grants.Flaw.GRANT_UNMATCHED, "a grant is active when it is used", steps=7, generated=2_667, distinct=1_505
    ),
    _flawed_grants(
        grants.Flaw.JOB_UNMATCHED,
        "a job leaves quarantine only by a grant",
        steps=10,
        generated=14_487,
        distinct=5_668,
    ),
    _flawed_grants(
        grants.Flaw.EXPIRED_ACCEPTED,
        "a grant has not expired when its use is decided",
        steps=6,
        generated=1_393,
        distinct=834,
    ),
    _flawed_grants(
        grants.Flaw.REVOKED_ACCEPTED, "a grant is active when it is used", steps=5, generated=643, distinct=437
    ),
    _flawed_grants(
        grants.Flaw.DRAFT_ACCEPTED, "a grant is active when it is used", steps=3, generated=102, distinct=72
    ),
    _flawed_grants(grants.Flaw.USED_ACCEPTED, "a grant is used once", steps=8, generated=5_416, distinct=2_643),
    _flawed_grants(
        grants.Flaw.TWO_WRITES, "a grant is consumed if and only if it was used", steps=5, generated=597, distinct=417
    ),
    _flawed_grants(grants.Flaw.OTHER_JOB, "a grant releases only its own job", steps=5, generated=634, distinct=434),
    Run(
        "limits: a queue and two keys",
        lambda: Limits().model(),
        Outcome(generated=35_951, distinct=8_638, promises={PROMISE_OF_LIMITS: Kept.ALWAYS}),
    ),
    Run(
        "limits: three jobs of one key",
        lambda: Limits(keys=ONE_KEY, queue=3).model(),
        Outcome(generated=9_846, distinct=2_752, promises={PROMISE_OF_LIMITS: Kept.ALWAYS}),
    ),
    Run(
        "limits: three workers, and an operator who acts twice",
        lambda: Limits(workers=3, changes=2).model(),
        Outcome(generated=157_598, distinct=27_635),
        large=True,
    ),
    _flawed_limits(limits.Flaw.NO_LOCK, "a slot is given out once", steps=4, generated=129, distinct=59),
    _flawed_limits(limits.Flaw.OLD_RULES, "no claim goes beyond a limit", steps=5, generated=185, distinct=85),
    _flawed_limits(limits.Flaw.END_KEEPS, "a slot belongs to a job that runs", steps=2, generated=11, distinct=9),
    _flawed_limits(limits.Flaw.REAPER_KEEPS, "a slot belongs to a job that runs", steps=3, generated=67, distinct=41),
    _flawed_limits(
        limits.Flaw.LATE_END,
        "a job that runs has a slot of each of its buckets",
        steps=3,
        generated=66,
        distinct=41,
    ),
    _flawed_limits(limits.Flaw.PARKED_HOLDS, "a slot belongs to a job that runs", steps=2, generated=9, distinct=7),
    Run(
        f"limits: {limits.Flaw.PARKED_CLAIMED}",
        lambda: Limits(keys=ONE_KEY, queue=3, flaw=limits.Flaw.PARKED_CLAIMED).model(),
        Outcome(generated=211, distinct=88, broken="only a pending job is parked", steps=5),
    ),
    _unkept_limits(limits.Flaw.NO_NEXT, generated=2_236, distinct=1_040),
    _unkept_limits(limits.Flaw.NO_SWEEP, generated=2_047, distinct=939),
    Run(
        "flow: two jobs and one that waits for both",
        lambda: Flow().model(),
        Outcome(generated=1_371, distinct=486, promises={FOLLOWED: Kept.IF_FAULTS_END}),
    ),
    Run(
        "flow: two jobs and one that is cancelled with either",
        lambda: Flow(policy=Policy.CANCEL).model(),
        Outcome(generated=2_980, distinct=920, promises=PROMISES_OF_FLOW),
    ),
    Run(
        "flow: two jobs and one that runs when both have ended",
        lambda: Flow(policy=Policy.RUN).model(),
        Outcome(generated=10_895, distinct=2_746, promises={FOLLOWED: Kept.IF_FAULTS_END}),
    ),
    Run(
        "flow: a batch of three and its callback",
        lambda: Flow(parents=3, policy=Policy.CANCEL).model(),
        Outcome(generated=24_213, distinct=6_111, promises=PROMISES_OF_FLOW),
    ),
    _unkept_flow(flow.Flaw.APART, Policy.WAIT, FOLLOWED, generated=2_307, distinct=818),
    Run(
        f"flow: {flow.Flaw.AT_THE_END}",
        lambda: Flow(policy=Policy.RUN, flaw=flow.Flaw.AT_THE_END).model(),
        Outcome(generated=198, distinct=135, broken="there is one job that follows", steps=4),
    ),
    _unkept_flow(flow.Flaw.END_LETS_GO, Policy.WAIT, FOLLOWED, generated=313, distinct=186),
    _flawed_flow(
        flow.Flaw.FIRST_ONLY,
        "a job starts only when those that it follows allow it",
        steps=4,
        generated=222,
        distinct=122,
    ),
    _flawed_flow(
        flow.Flaw.FAILED_COUNTS,
        "a job starts only when those that it follows allow it",
        steps=5,
        generated=608,
        distinct=319,
    ),
    _flawed_flow(flow.Flaw.LOOK_UNMATCHED, "a job that follows starts once", steps=8, generated=1_972, distinct=730),
    _flawed_flow(
        flow.Flaw.STALE_LOOK,
        "a job is cancelled only for a job that was cancelled",
        steps=4,
        generated=365,
        distinct=198,
    ),
    _flawed_flow(
        flow.Flaw.BROKEN_DOOMS,
        "a job is cancelled only for a job that was cancelled",
        steps=3,
        generated=169,
        distinct=97,
    ),
    _unkept_flow(flow.Flaw.IN_ORDER, Policy.CANCEL, CANCELLED, generated=2_276, distinct=742),
)
