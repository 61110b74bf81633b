"""Every run of a model with its expected outcome: the number of states, the promises kept, and what a flaw breaks.

Invariants: a run passes only if its outcome is exactly the one listed here, so a changed rule shows as a changed
number; a flaw that breaks nothing is an error.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
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


@dataclass(frozen=True)
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
        return self.fault is None


@dataclass(frozen=True)
class Run:
    """One model to explore, and its expected outcome. A large one takes minutes."""

    name: str
    model: Callable[[], Model[Any]]
    expected: Outcome
    large: bool = False

    def explored(self) -> Graph[Any]:
        return explore(self.model(), keep_edges=bool(self.expected.promises))

    def outcome(self, graph: Graph[Any] | None = None) -> Outcome:
        """Return the outcome of the explored graph; without a graph, explore the model first."""
        graph = graph or self.explored()
        broken = graph.broken
        return Outcome(
            graph.generated,
            graph.distinct,
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
CLIENTS_SERVED = ("NoStarvation of client 0", "NoStarvation of client 1")
PROMISES_OF_TWO_CLIENTS = dict.fromkeys((*CLIENTS_SERVED, *PROMISES_OF_THE_LOG), Kept.ALWAYS)
PROMISES_OF_A_FLEET = {
    # Attempts are counted, so only an actor that crashes before each write can go on for ever.
    "every job ends or rests": Kept.IF_FAULTS_END,
    "a committed execution is finished": Kept.IF_FAULTS_END,
}
PROMISES_OF_LIMITS = {"every job runs or is taken out": Kept.ALWAYS}
PROMISES_OF_FLOW = {  # a worker that crashes between each read and its write unparks no job
    "what follows runs when the jobs before it allow it": Kept.IF_FAULTS_END,
    "what follows a cancelled job is cancelled": Kept.IF_FAULTS_END,
}


def _flawed(size: Any, flaws: Mapping[StrEnum, tuple[str, int, int, int]]) -> Iterator[Run]:
    """Yield the runs of one size with each flaw, given the invariant that breaks, after how many steps, the states."""
    for flaw, (broken, steps, generated, distinct) in flaws.items():
        yield _with_flaw(size, flaw, Outcome(generated, distinct, broken, steps))


def _unkept(size: Any, flaw: StrEnum, promises: Mapping[str, Kept], generated: int, distinct: int) -> Run:
    """Return the run of a flaw with which these promises are never kept."""
    return _with_flaw(size, flaw, Outcome(generated, distinct, promises=dict.fromkeys(promises, Kept.NEVER)))


def _with_flaw(size: Any, flaw: StrEnum, expected: Outcome) -> Run:
    return Run(f"{type(size).__name__.lower()}: {flaw}", size._replace(flaw=flaw).model, expected)


ONE_KEY = ("1", "1", "1")
POISONED = Log(poison=frozenset({0}), payloads=1)
SMALL_FLEET = Fleet(max_attempts=1, replay_attempts=0, excused=0)
ONE_WORKER = Limits(keys=ONE_KEY, queue=3, workers=1)
FOLLOWED, CANCELLED = ({name: kept} for name, kept in PROMISES_OF_FLOW.items())
HAS_EFFECT = "a committed job has an effect, and no other job has one"
OPEN_MEANS_RUNNING = "a job runs while an execution is open"
ACTIVE = "a grant is active when it is used"
SLOT_RUNS = "a slot belongs to a job that runs"
ALLOWED = "a job starts only when those that it follows allow it"
CANCELLED_FOR = "a job is cancelled only for a job that was cancelled"
RUNS = (
    Run(
        "published log, 1 client",
        partial(published, clients=1, entries=2, operations=2),
        Outcome(70_713, 26_856, promises=dict.fromkeys((*PROMISES_OF_THE_LOG, CLIENTS_SERVED[0]), Kept.ALWAYS)),
    ),
    Run(
        "published log, 2 clients",
        partial(published, clients=2, entries=2, operations=2),
        Outcome(2_548_321, 953_568),
        large=True,
    ),
    Run(
        "published log, 2 clients apart",
        partial(published, clients=2, entries=2, operations=1, symmetric=False),
        Outcome(141_230, 53_037, promises=PROMISES_OF_TWO_CLIENTS),
    ),
    Run(
        "published log: the entries of client 1 are not ended",
        partial(published, clients=2, entries=1, operations=1, symmetric=False, starved=1),
        Outcome(
            718,
            441,
            promises=PROMISES_OF_TWO_CLIENTS | {CLIENTS_SERVED[1]: Kept.NEVER, "EventualCompletion": Kept.NEVER},
        ),
    ),
    Run(
        "log: effects in the ledger's own database",
        Log().model,
        Outcome(211_233, 62_267, promises=PROMISES_OF_THE_LOG),
    ),
    Run(
        "log: effects in another system that knows keys",
        Log(keyed_target=True, payloads=1).model,
        Outcome(87_545, 30_147, promises=PROMISES_OF_THE_LOG),
    ),
    Run(
        "log: an entry whose work never succeeds",
        POISONED.model,
        Outcome(33_385, 11_035, promises=PROMISES_OF_THE_LOG),
    ),
    Run(
        "log: three keys",
        Log(keys=3, payloads=1, requests=1).model,
        Outcome(759_429, 301_608, promises=PROMISES_OF_THE_LOG),
        large=True,
    ),
    *_flawed(
        Log(),
        {
            log.Flaw.KEY_NOT_LOOKED_UP: ("one entry a key", 2, 27, 25),
            log.Flaw.CONFLICT_NOT_SEEN: ("answered is recorded", 2, 29, 25),
            log.Flaw.ANSWER_BEFORE_WRITE: ("answered is recorded", 2, 25, 24),
            log.Flaw.CLEANUP_DROPS_KEY: ("answered is recorded", 4, 1_344, 604),
            log.Flaw.CLEANUP_TAKES_PENDING: ("answered is recorded", 2, 35, 30),
            log.Flaw.MARK_APART: ("one effect a key", 8, 47_920, 16_791),
        },
    ),
    _with_flaw(
        POISONED,
        log.Flaw.FAILURE_IS_FREE,
        Outcome(
            10_933,
            4_443,
            promises=PROMISES_OF_THE_LOG | {"EventualRecovery": Kept.NEVER, "EventualCompletion": Kept.NEVER},
        ),
    ),
    Run("fleet: two workers, a reaper, an operator", Fleet().model, Outcome(804_077, 146_876)),
    Run(
        "fleet: no job is given back",
        Fleet(excused=0).model,
        Outcome(128_481, 24_100, promises=PROMISES_OF_A_FLEET),
    ),
    Run(
        "fleet: a job is released",
        Fleet(max_attempts=1, replay_attempts=0, releases=1).model,
        Outcome(227_804, 42_100),
    ),
    Run(
        "fleet: two reapers, two operators",
        Fleet(workers=1, reapers=2, operators=2, lease=1, max_attempts=1, excused=0, releases=1).model,
        Outcome(400_171, 70_957),
    ),
    Run("fleet: three workers", Fleet(workers=3).model, Outcome(8_239_267, 1_124_697), large=True),
    Run(
        "fleet: two jobs",
        Fleet(jobs=2, max_attempts=1, excused=0).model,
        Outcome(8_727_723, 1_371_625),
        large=True,
    ),
    Run(
        "fleet: three workers, and a job is released",
        Fleet(workers=3, releases=1).model,
        Outcome(63_148_822, 8_535_711),
        large=True,
    ),
    Run("grants: two jobs", Grants().model, Outcome(52_829, 13_889)),
    Run("grants: two clerks", Grants(jobs=1, clerks=2).model, Outcome(104_571, 22_017)),
    Run("grants: three grants", Grants(grants=3).model, Outcome(4_109_053, 931_457), large=True),
    Run("guards: a job, its workers, a reaper, an operator", JobGuards().model, Outcome(77_866, 25_170)),
    Run("guards: grants, a switch, a value", GovernedGuards().model, Outcome(416, 212)),
    *_flawed(
        Fleet(max_attempts=1),
        {
            fleet.Flaw.CLAIM_UNMATCHED: ("one execution is open", 4, 81, 44),
            fleet.Flaw.RULING_UNMATCHED: (OPEN_MEANS_RUNNING, 4, 157, 90),
            fleet.Flaw.FINISH_UNMATCHED: ("a move starts from the state of its row", 10, 8_267, 2_598),
            fleet.Flaw.NO_FENCE: ("an effect is of the execution that committed", 12, 20_992, 5_654),
            fleet.Flaw.LEASE_UNCHECKED: ("a lost lease changes nothing", 6, 1_052, 412),
            fleet.Flaw.HASTY_REAPER: ("a live lease is not taken", 4, 160, 94),
            fleet.Flaw.BLIND_REAPER: (HAS_EFFECT, 8, 3_161, 971),
            fleet.Flaw.EFFECT_FIRST: (HAS_EFFECT, 3, 42, 22),
            fleet.Flaw.LATE_FINISH: (HAS_EFFECT, 5, 431, 218),
            fleet.Flaw.TORN_WRITE: (OPEN_MEANS_RUNNING, 4, 127, 72),
            fleet.Flaw.UNCOUNTED: ("every attempt is counted", 2, 10, 7),
            fleet.Flaw.NO_BUDGET: ("the attempts stay within the budget", 15, 63_519, 15_979),
            fleet.Flaw.NO_END: ("a job without attempts left does not stay failed", 12, 19_882, 5_349),
        },
    ),
    _unkept(SMALL_FLEET, fleet.Flaw.IDLE_REAPER, PROMISES_OF_A_FLEET, 2_939, 609),
    _unkept(SMALL_FLEET, fleet.Flaw.HEART_ALONE, PROMISES_OF_A_FLEET, 3_371, 663),
    *_flawed(
        Grants(),
        {
            grants.Flaw.SELF_APPROVAL: ("a grant is approved by another person than requested it", 3, 70, 65),
            grants.Flaw.GRANT_UNMATCHED: (ACTIVE, 7, 2_667, 1_505),
            grants.Flaw.JOB_UNMATCHED: ("a job leaves quarantine only by a grant", 10, 14_487, 5_668),
            grants.Flaw.EXPIRED_ACCEPTED: ("a grant has not expired when its use is decided", 6, 1_393, 834),
            grants.Flaw.REVOKED_ACCEPTED: (ACTIVE, 5, 643, 437),
            grants.Flaw.DRAFT_ACCEPTED: (ACTIVE, 3, 102, 72),
            grants.Flaw.USED_ACCEPTED: ("a grant is used once", 8, 5_416, 2_643),
            grants.Flaw.TWO_WRITES: ("a grant is consumed if and only if it was used", 5, 597, 417),
            grants.Flaw.OTHER_JOB: ("a grant releases only its own job", 5, 634, 434),
        },
    ),
    Run("limits: a queue and two keys", Limits().model, Outcome(35_951, 8_638, promises=PROMISES_OF_LIMITS)),
    Run(
        "limits: three jobs of one key",
        Limits(keys=ONE_KEY, queue=3).model,
        Outcome(9_846, 2_752, promises=PROMISES_OF_LIMITS),
    ),
    Run(
        "limits: three workers, and an operator who acts twice",
        Limits(workers=3, changes=2).model,
        Outcome(157_598, 27_635),
        large=True,
    ),
    *_flawed(
        Limits(),
        {
            limits.Flaw.NO_LOCK: ("a slot is given out once", 4, 129, 59),
            limits.Flaw.OLD_RULES: ("no claim goes beyond a limit", 5, 185, 85),
            limits.Flaw.END_KEEPS: (SLOT_RUNS, 2, 11, 9),
            limits.Flaw.REAPER_KEEPS: (SLOT_RUNS, 3, 67, 41),
            limits.Flaw.LATE_END: ("a job that runs has a slot of each of its buckets", 3, 66, 41),
            limits.Flaw.PARKED_HOLDS: (SLOT_RUNS, 2, 9, 7),
        },
    ),
    *_flawed(
        Limits(keys=ONE_KEY, queue=3),
        {limits.Flaw.PARKED_CLAIMED: ("only a pending job is parked", 5, 211, 88)},
    ),
    _unkept(ONE_WORKER, limits.Flaw.NO_NEXT, PROMISES_OF_LIMITS, 2_236, 1_040),
    _unkept(ONE_WORKER, limits.Flaw.NO_SWEEP, PROMISES_OF_LIMITS, 2_047, 939),
    Run("flow: two jobs and one that waits for both", Flow().model, Outcome(1_371, 486, promises=FOLLOWED)),
    Run(
        "flow: two jobs and one that is cancelled with either",
        Flow(policy=Policy.CANCEL).model,
        Outcome(2_980, 920, promises=PROMISES_OF_FLOW),
    ),
    Run(
        "flow: two jobs and one that runs when both have ended",
        Flow(policy=Policy.RUN).model,
        Outcome(10_895, 2_746, promises=FOLLOWED),
    ),
    Run(
        "flow: a batch of three and its callback",
        Flow(parents=3, policy=Policy.CANCEL).model,
        Outcome(24_213, 6_111, promises=PROMISES_OF_FLOW),
    ),
    _unkept(Flow(), flow.Flaw.APART, FOLLOWED, 2_307, 818),
    *_flawed(Flow(policy=Policy.RUN), {flow.Flaw.AT_THE_END: ("there is one job that follows", 4, 198, 135)}),
    _unkept(Flow(), flow.Flaw.END_LETS_GO, FOLLOWED, 313, 186),
    *_flawed(
        Flow(policy=Policy.CANCEL),
        {
            flow.Flaw.FIRST_ONLY: (ALLOWED, 4, 222, 122),
            flow.Flaw.FAILED_COUNTS: (ALLOWED, 5, 608, 319),
            flow.Flaw.LOOK_UNMATCHED: ("a job that follows starts once", 8, 1_972, 730),
            flow.Flaw.STALE_LOOK: (CANCELLED_FOR, 4, 365, 198),
            flow.Flaw.BROKEN_DOOMS: (CANCELLED_FOR, 3, 169, 97),
        },
    ),
    _unkept(Flow(policy=Policy.CANCEL), flow.Flaw.IN_ORDER, CANCELLED, 2_276, 742),
)
