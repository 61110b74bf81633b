"""Workers, reapers and operators that act on the same jobs, in every order of steps.

An actor reads the rows, calls `core.decide`, and writes the move in a later step, only if the rows still match it.
Between the two steps other actors write, leases expire, and the actor stalls or crashes. So the search includes every
stale decision, every race, and every worker that returns after its lease has expired.

Invariants: every move is one that `core.decide` allows, written as the store writes it; a job's effect is in the same
write that crosses the commit boundary. A time is the time left of a lease or a delay, and now is always 0, so the
number of states is finite without a bound. A `Flaw` is one wrong implementation; each breaks a named invariant or
promise.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache, partial
from typing import NamedTuple

from holdfast.core import commands, governed
from holdfast.core.decide import Move
from holdfast.core.journal import Ruling
from holdfast.core.machines import COMMITTED, JOB, OPEN, ExecutionStatus, JobState
from holdfast.core.project import RULED_EDGES, project
from holdfast.model import rules
from holdfast.model.checker import Model, Promise
from holdfast.model.rules import Budget, Guard, Plan, Try, Work, at, judged, matches, moved, planned, tried, unguarded

NOW = 0


class Kind(StrEnum):
    """The kinds of writes; each kind has its own guards."""

    CLAIM = "claim"
    WORK = "work"
    FINISH = "finish"
    REAP = "reap"
    RULE = "rule"


KINDS = {
    **dict.fromkeys(("begin", "lease"), Kind.CLAIM),
    **dict.fromkeys(("start", "complete", "commit", "fail", "give up", "give back"), Kind.WORK),
    "finish": Kind.FINISH,
    **dict.fromkeys(("recover", "expire"), Kind.REAP),
    **dict.fromkeys(("quarantine", "cancel", "retry", "replay", "release"), Kind.RULE),
}
FAIR = frozenset(
    {"tick", "let go"}
    | {f"decide to {verb}" for verb in ("begin", "start", "complete", "finish", "recover", "expire")}
    | {name for verb, kind in KINDS.items() if kind is not Kind.RULE for name in (verb, f"{verb} refused")}
)
"""An operator need not act and an attempt need not fail, but a worker or a reaper writes what it has decided."""


class Flaw(StrEnum):
    """One wrong implementation."""

    CLAIM_UNMATCHED = "a claim does not check that the job is unchanged since it was read"
    RULING_UNMATCHED = "a ruling does not check that the job is unchanged since it was read"
    FINISH_UNMATCHED = "a worker's finish does not check that the execution is still open"
    NO_FENCE = "a worker's write finds the execution by its job, not by its token"
    LEASE_UNCHECKED = "a worker's write does not check that its lease is live"
    HASTY_REAPER = "the reaper does not wait until the lease expires"
    BLIND_REAPER = "the reaper puts back a job that has crossed the commit boundary"
    IDLE_REAPER = "the reaper does not finish committed executions"
    HEART_ALONE = "a heartbeat extends the lease of a worker that no longer works"
    EFFECT_FIRST = "the effect is made before the write, not in it"
    LATE_FINISH = "a worker whose lease was lost sets its execution to done, without the commit boundary"
    TORN_WRITE = "the execution ends in one write and its job in another"
    UNCOUNTED = "a claim does not count the attempt"
    NO_BUDGET = "a job whose lease was lost is retried without a limit"
    NO_END = "a job whose lease was lost stays failed without attempts left"


UncheckedGuards = frozenset[tuple[Kind, Guard]]
_UNCHECKED: dict[Flaw | None, UncheckedGuards] = {
    Flaw.CLAIM_UNMATCHED: frozenset({(Kind.CLAIM, Guard.JOB)}),
    Flaw.RULING_UNMATCHED: frozenset({(Kind.RULE, Guard.JOB)}),
    Flaw.FINISH_UNMATCHED: frozenset({(Kind.FINISH, Guard.JOB), (Kind.FINISH, Guard.EXECUTION)}),
    Flaw.LEASE_UNCHECKED: frozenset({(Kind.WORK, Guard.LEASE)}),
    Flaw.HASTY_REAPER: frozenset({(Kind.REAP, Guard.LEASE)}),
}
_MISCOUNTED: dict[Flaw | None, Budget] = {Flaw.NO_BUDGET: Budget(99), Flaw.NO_END: Budget(1, 99)}


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """One job with its executions and their effects. Equal cases are one object: see `_case`."""

    work: Work
    tries: tuple[Try, ...]
    effects: tuple[int, ...]  # the tokens under which the job's effect was made
    rulings: tuple[Ruling, ...]  # the last ruling since the last claim: earlier ones no longer count
    released: int
    faults: tuple[str, ...]  # broken invariants: checked once when the case is made, not in every state that has it


_case = cache(Case)
"""States are compared very often; equal parts are one object, so that a comparison is cheap."""


class Hand(NamedTuple):
    """The memory of an actor: the job that it works on, the token that it holds, the move that it will write."""

    job: int = 0
    token: int = 0
    plan: Plan | None = None


IDLE = Hand()


class State(NamedTuple):
    """Everything at one moment. The crews are the workers, the reapers and the operators."""

    jobs: tuple[Case, ...]
    crews: tuple[tuple[Hand, ...], ...]


Local = tuple[str, Case, Hand]  # a step of one actor on one job: the action, the job and the actor after it
Act = Callable[[Case, Hand, int], tuple[Local, ...]]


class Fleet(NamedTuple):
    """The size of the model and its flaw; `unchecked` leaves single guards out of the writes of a kind."""

    jobs: int = 1
    workers: int = 2
    reapers: int = 1
    operators: int = 1
    lease: int = 2
    delay: int = 1  # before a failed job is retried
    max_attempts: int = 2
    replay_attempts: int = 1
    excused: int = 1  # how often a job may be given back
    releases: int = 0  # how often an operator has a grant to release a job: grants are modelled in `grants.py`
    flaw: Flaw | None = None
    unchecked: UncheckedGuards = frozenset()

    def model(self) -> Model[State]:
        crews = tuple((IDLE,) * number for number in (self.workers, self.reapers, self.operators))
        job = _case(work=rules.submitted(self.budget), tries=(), effects=(), rulings=(), released=0, faults=())
        return Model(
            initial=State((job,) * self.jobs, crews),
            steps=partial(_steps, tuple(cache(partial(act, self)) for act in (_worker, _reaper, _operator))),
            invariants={name: partial(_sound, name) for name in (*_HOLDS, *_SLIPS)},
            # Attempts are counted, so only an actor that crashes before each write can go on for ever: both promises
            # need crashes to stop. A worker that stalls instead loses its lease, and uses an attempt.
            promises={
                "every job ends or rests": Promise(lambda state: not _all_rest(state), _all_rest),
                "a committed execution is finished": Promise(_any_committed, lambda state: not _any_committed(state)),
            },
            fair=FAIR,
            faults=frozenset({"crash"}),
        )

    @property
    def budget(self) -> Budget:
        return Budget(self.max_attempts, self.replay_attempts)

    def left_out(self, kind: Kind) -> set[Guard]:
        """Return the guards that a write of this kind leaves out by a flaw."""
        return {guard for of, guard in self.unchecked | _UNCHECKED.get(self.flaw, frozenset()) if of is kind}


# ---------------------------------------------------------------------------------------------------------------------
# Actions


def _steps(acts: tuple[Act, ...], state: State) -> Iterator[tuple[str, State]]:
    jobs, crews = state
    for crew, hands in enumerate(crews):
        for number, hand in enumerate(hands):
            for place in (hand.job,) if hand.token or hand.plan else range(len(jobs)):
                for action, case, after in acts[crew](jobs[place], hand, place):
                    cases = (*jobs[:place], case, *jobs[place + 1 :])
                    others = _in_order((*hands[:number], after, *hands[number + 1 :]))
                    yield action, State(cases, (*crews[:crew], others, *crews[crew + 1 :]))
    older = tuple(map(_older, jobs))
    if older != jobs:
        yield "tick", State(older, crews)


def _worker(fleet: Fleet, case: Case, hand: Hand, place: int) -> tuple[Local, ...]:
    """Return what a worker can do. Its heartbeat is a separate thread, so it also beats while a write is open."""
    found = [_written(fleet, case, hand, hand.plan)] if hand.plan else list(_worked(fleet, case, hand, place))
    if hand.token or fleet.flaw is Flaw.HEART_ALONE:
        beat = _beaten(fleet, case, hand.token)
        if beat is not case:
            found.append(("beat", beat, hand))
    if hand != IDLE:
        found.append(("crash", case, IDLE))
    return tuple(found)


def _worked(fleet: Fleet, case: Case, hand: Hand, place: int) -> Iterator[Local]:
    if not hand.token:
        yield from _decided(fleet, case, Hand(place), {"begin": commands.Claim(), "lease": commands.Claim(begin=False)})
        return
    token = len(case.tries) if fleet.flaw is Flaw.NO_FENCE else hand.token
    found = _decided(fleet, case, hand, _commands(fleet, token, case.work.excused), token)
    if found:
        yield from found
    elif fleet.flaw is Flaw.LATE_FINISH:
        done = case.tries[token - 1]._replace(status=ExecutionStatus.DONE, expires=NOW)
        yield "finish", _seen(fleet, _but(case, tries=_put(case.tries, done))), IDLE
    else:
        yield "let go", case, IDLE


def _reaper(fleet: Fleet, case: Case, hand: Hand, place: int) -> tuple[Local, ...]:
    """Return what a reaper can do: it finishes committed executions, and puts back the other jobs."""
    if hand.plan is not None:
        return _written(fleet, case, hand, hand.plan), ("crash", case, IDLE)
    if case.work.state is not JobState.RUNNING:
        return ()
    expire, recover = {"expire": commands.Expire(at(fleet.delay))}, {"recover": commands.Finish()}
    candidates = expire if fleet.flaw is Flaw.IDLE_REAPER else recover | expire
    return _decided(fleet, case, Hand(place), candidates, len(case.tries))


def _operator(fleet: Fleet, case: Case, hand: Hand, place: int) -> tuple[Local, ...]:
    if hand.plan is not None:
        return (_written(fleet, case, hand, hand.plan),)
    return _decided(fleet, case, Hand(place), _RULINGS if case.released < fleet.releases else _FREE_RULINGS)


_FREE_RULINGS: dict[str, object] = {
    "quarantine": commands.Quarantine("bad"),
    "cancel": commands.Cancel(),
    "retry": commands.Retry(),
    "replay": commands.Replay("incident"),
}
_RULINGS = _FREE_RULINGS | {"release": governed.Release("operator", "repaired", grant_id=1)}


def _commands(fleet: Fleet, token: int, excused: int) -> dict[str, object]:
    """Return the commands of the holder of a token."""
    found: dict[str, object] = {
        "start": commands.Start(token),
        "complete": commands.Complete(token),
        "commit": commands.Commit(token),
        "finish": commands.Finish(token),
        "fail": commands.Fail(token, "failed", "failed", retry_at=at(fleet.delay)),
        "give up": commands.Fail(token, "failed", "failed", permanent=True),
    }
    if excused < fleet.excused:
        found["give back"] = commands.GiveBack(token, at(NOW))
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Read and decide, then write


def _decided(
    fleet: Fleet, case: Case, hand: Hand, candidates: Mapping[str, object], token: int = 0
) -> tuple[Local, ...]:
    """Read the rows and decide on each command: each move that is allowed can be the one that is written later."""
    found = []
    for verb, command in candidates.items():
        read = _misread(fleet.flaw, case.tries[token - 1], verb) if token else None
        budget = _MISCOUNTED.get(fleet.flaw, fleet.budget) if verb == "expire" else fleet.budget
        answer = judged(case.work, read, budget, command, NOW)
        if isinstance(answer, Move) and answer.steps:
            early = fleet.flaw is Flaw.EFFECT_FIRST and verb == "complete"
            after = _seen(fleet, _but(case, effects=(*case.effects, hand.token))) if early else case
            found.append((f"decide to {verb}", after, hand._replace(plan=planned(verb, answer))))
    return tuple(found)


def _misread(flaw: Flaw | None, attempt: Try, verb: str) -> Try:
    """Return the execution that a reaper reads: the real one, or a wrong one by a flaw."""
    if verb == "expire" and flaw is Flaw.BLIND_REAPER and attempt.status is ExecutionStatus.COMMITTED:
        return attempt._replace(status=ExecutionStatus.IN_PROGRESS)
    return attempt._replace(expires=NOW) if verb == "expire" and flaw is Flaw.HASTY_REAPER else attempt


def _written(fleet: Fleet, case: Case, hand: Hand, plan: Plan) -> Local:
    """Write a move if the rows still match it; else the write is refused, and the actor forgets the move."""
    move, verb = plan.move, plan.verb
    attempt = case.tries[move.token - 1] if move.token else None
    if not matches(unguarded(move, fleet.left_out(KINDS[verb])), case.work, attempt, NOW):
        return f"{verb} refused", case, IDLE
    token = move.token or len(case.tries) + 1
    slips = tuple(name for name, slipped in _SLIPS.items() if slipped(plan, case, attempt))
    changes: dict[str, object] = {"faults": slips}
    step = move.step(JOB)
    if step is not None and not (fleet.flaw is Flaw.TORN_WRITE and verb == "complete"):
        work = moved(move, case.work)
        changes["work"] = work._replace(attempts=0) if fleet.flaw is Flaw.UNCOUNTED else work
        ruled = JOB.path(step.event, step.source).edges[-1] in RULED_EDGES
        changes["rulings"] = (Ruling("", work.state, work.attempts),) if ruled else ()
        changes["released"] = case.released + (verb == "release")
    execution = tried(move, attempt, token=token, expires=fleet.lease)
    if execution is not None:  # the time left of a closed lease does not matter: one value keeps the states few
        left = execution.expires if execution.status in OPEN else NOW
        changes["tries"] = _put(case.tries, execution._replace(expires=left))
    if verb in ("complete", "commit") and fleet.flaw is not Flaw.EFFECT_FIRST:
        changes["effects"] = (*case.effects, hand.token)
    goes_on = verb in ("begin", "lease", "start", "commit")
    return verb, _seen(fleet, _but(case, **changes)), Hand(hand.job, hand.token or token) if goes_on else IDLE


def _beaten(fleet: Fleet, case: Case, token: int) -> Case:
    """Extend a lease in one statement: a heartbeat does not read the rows first."""
    if fleet.flaw in (Flaw.NO_FENCE, Flaw.HEART_ALONE):
        token = len(case.tries)
    attempt = case.tries[token - 1] if token else None
    if attempt is None or not isinstance(judged(case.work, attempt, fleet.budget, commands.Beat(token), NOW), Move):
        return case
    return _but(case, tries=_put(case.tries, attempt._replace(expires=fleet.lease)))


@cache
def _older(case: Case) -> Case:
    """Let time pass: leases and delays have less time left."""
    tries = tuple(attempt._replace(expires=max(attempt.expires - 1, NOW)) for attempt in case.tries)
    return _but(case, work=case.work._replace(due=max(case.work.due - 1, NOW)), tries=tries)


def _but(case: Case, **changes: object) -> Case:
    return _case(**{field.name: changes.get(field.name, getattr(case, field.name)) for field in fields(Case)})


def _put(tries: tuple[Try, ...], attempt: Try) -> tuple[Try, ...]:
    return (*tries[: attempt.token - 1], attempt, *tries[attempt.token :])


@cache
def _in_order(hands: tuple[Hand, ...]) -> tuple[Hand, ...]:
    """Sort actors of one kind: states that differ only in the order of actors are one state."""
    return tuple(sorted(hands, key=lambda hand: (hand.job, hand.token, hand.plan.rank if hand.plan else ())))


# ---------------------------------------------------------------------------------------------------------------------
# What must hold


def _those(case: Case, statuses: frozenset[ExecutionStatus]) -> list[int]:
    return [attempt.token for attempt in case.tries if attempt.status in statuses]


_HOLDS: dict[str, Callable[[Fleet, Case], bool]] = {
    "one effect a job": lambda _, case: len(case.effects) <= 1,
    "one execution commits": lambda _, case: len(_those(case, COMMITTED)) <= 1,
    "an effect is of the execution that committed": lambda _, case: (
        not case.effects or not _those(case, COMMITTED) or case.effects[0] == _those(case, COMMITTED)[0]
    ),
    "a committed job has an effect, and no other job has one": lambda _, case: (
        bool(case.effects) == bool(_those(case, COMMITTED))
    ),
    "one execution is open": lambda _, case: len(_those(case, OPEN)) <= 1,
    "a job runs while an execution is open": lambda _, case: (
        (case.work.state is JobState.RUNNING) == bool(_those(case, OPEN))
    ),
    "the state is what its history adds up to": lambda _, case: case.work.state is project(case.tries, case.rulings),
    "every attempt is counted": lambda _, case: case.work.attempts == len(case.tries),
    # Only a release gives a job more than its budget: one attempt each.
    "the attempts stay within the budget": lambda fleet, case: case.work.spent <= sum(fleet.budget) + case.released,
    "a job without attempts left does not stay failed": lambda fleet, case: (
        case.work.state is not JobState.FAILED or case.work.spent < sum(fleet.budget)
    ),
}
_SLIPS: dict[str, Callable[[Plan, Case, Try | None], bool]] = {
    # Past the boundary the worker may finish after its lease has expired, so FINISH is not a kind of WORK.
    "a lost lease changes nothing": lambda plan, _, attempt: (
        KINDS[plan.verb] is Kind.WORK and attempt is not None and attempt.expires <= NOW
    ),
    "a live lease is not taken": lambda plan, _, attempt: (
        KINDS[plan.verb] is Kind.REAP and attempt is not None and attempt.expires > NOW
    ),
    "a move starts from the state of its row": lambda plan, case, attempt: any(
        step.source not in (None, case.work.state if step.machine == JOB.name else attempt and attempt.status)
        for step in plan.move.steps
    ),
}
"""Invariants of a write: a state does not show them later, so they are checked at the write."""


def _seen(fleet: Fleet, case: Case) -> Case:
    """Check a job after a change, and return it with the invariants that it breaks."""
    return _but(case, faults=(*(name for name, holds in _HOLDS.items() if not holds(fleet, case)), *case.faults))


def _sound(name: str, state: State) -> bool:
    # A loop, since this runs for each invariant of each state, and a generator takes three times as long.
    for case in state.jobs:  # noqa: SIM110
        if name in case.faults:
            return False
    return True


def _all_rest(state: State) -> bool:
    return not any(case.work.state in (JobState.PENDING, JobState.RUNNING) for case in state.jobs)


def _any_committed(state: State) -> bool:
    return any(attempt.status is ExecutionStatus.COMMITTED for case in state.jobs for attempt in case.tries)
