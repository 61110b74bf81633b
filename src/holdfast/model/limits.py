"""Workers that run jobs under limits: parked jobs, slots, lost leases, and an operator who changes a limit.

A claim, an end and a sweep look at slots under one lock, so each is one step here. The search tries every order of
these steps; between its claim and its end a worker may lose its lease or crash.

Invariants: `core.decide` allows every move of a job, and `core.limits.Room` gives out every slot, as in the store. A
time is the time left of a lease. A `Flaw` is one wrong implementation; each breaks a named invariant or promise.
"""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from functools import cache, partial
from typing import NamedTuple

from holdfast.core import commands
from holdfast.core.decide import Move
from holdfast.core.limits import EVERY, KEY, QUEUE, Assignment, Candidate, Limit, Room, Rules, buckets_of, rule_of
from holdfast.core.machines import JobState
from holdfast.model.checker import Model, Promise
from holdfast.model.rules import Budget, Try, Work, at, judged, moved, submitted, tried, with_at

NOW = 0
BUDGET = Budget(2)
LEASE = 1
BY_QUEUE, BY_KEY = f"{QUEUE}:mail", f"{KEY}:send"
Slots = frozenset[tuple[str, int, int]]  # bucket, slot, job


class Flaw(StrEnum):
    """One wrong implementation."""

    NO_LOCK = "a claim counts the slots in one step and takes one in another"
    OLD_RULES = "a claim reads the limits before it has the lock"
    END_KEEPS = "the end of a job does not free its slots"
    REAPER_KEEPS = "the loss of a lease does not free the slots"
    LATE_END = "a worker whose lease was lost frees the slots of its job"
    PARKED_HOLDS = "a job that is parked behind one limit takes a slot of the other"
    PARKED_CLAIMED = "a claim does not leave out parked jobs"
    NO_NEXT = "neither the end of a job nor a sweep unparks the next job"
    NO_SWEEP = "no sweep looks for room that no job took"


class Hand(NamedTuple):
    """The memory of a worker: its job and token, and by a flaw the limits or the slots as it has read them."""

    job: int = 0
    token: int = 0
    rules: tuple[int, int] | None = None
    slots: Slots | None = None


IDLE = Hand()


class Case(NamedTuple):
    """One job, its last attempt, and the bucket behind which it is parked."""

    work: Work
    attempt: Try | None = None
    parked: str | None = None


class State(NamedTuple):
    """The state of the model; `over` is whether a claim has gone beyond a limit that was in force."""

    jobs: tuple[Case, ...]
    slots: Slots
    workers: tuple[Hand, ...]
    limits: tuple[int, int]  # of the queue, of each key
    changes: int
    over: bool


class Limits(NamedTuple):
    """The size of the model and its flaw: the keys of the jobs, and how often an operator may act."""

    keys: tuple[str, ...] = ("1", "1", "2")
    workers: int = 2
    queue: int = 2
    key: int = 1
    changes: int = 1
    flaw: Flaw | None = None

    def model(self) -> Model[State]:
        jobs = (Case(submitted(BUDGET)),) * len(self.keys)
        return Model(
            initial=State(jobs, frozenset(), (IDLE,) * self.workers, (self.queue, self.key), self.changes, over=False),
            steps=partial(_steps, self),
            invariants={
                "a slot is given out once": lambda state: (
                    len({(bucket, slot) for bucket, slot, _ in state.slots}) == len(state.slots)
                ),
                "no claim goes beyond a limit": lambda state: not state.over,
                "a slot belongs to a job that runs": lambda state: all(
                    state.jobs[job].work.state is JobState.RUNNING for _, _, job in state.slots
                ),
                "a job that runs has a slot of each of its buckets": partial(_all_held, self),
                "only a pending job is parked": lambda state: all(
                    case.parked is None or case.work.state is JobState.PENDING for case in state.jobs
                ),
            },
            promises={"every job runs or is taken out": Promise(lambda state: not _all_rest(state), _all_rest)},
            fair=frozenset({"look", "claim", "complete", "forget", "expire", "sweep", "tick"}),
            faults=frozenset({"crash"}),
        )

    def candidate(self, job: int) -> Candidate:
        """Return a job as a claim sees it."""
        return Candidate(job, "mail", "send", self.keys[job])


@cache
def _buckets(model: Limits, job: int) -> tuple[str, ...]:
    return tuple(name for name, _ in buckets_of(model.candidate(job), _rules((model.queue, model.key))))


@cache
def _rules(limits: tuple[int, int]) -> Rules:
    return {BY_QUEUE: Limit(running=limits[0]), BY_KEY: Limit(running=limits[1], path="key")}


def _room(rules: Rules, slots: Slots) -> Room:
    room = Room(rules, at(NOW))
    room.know([(bucket, slot) for bucket, slot, _ in slots], ())
    return room


# ---------------------------------------------------------------------------------------------------------------------
# Actions


def _steps(model: Limits, state: State) -> Iterator[tuple[str, State]]:
    for number, hand in enumerate(state.workers):
        for action, after, kept in _worker(model, state, hand):
            yield action, after._replace(workers=tuple(sorted(with_at(after.workers, number, kept), key=_rank)))
    for place, case in enumerate(state.jobs):
        if case.attempt is not None:
            yield from _ruled(model, state, place, "expire", commands.Expire(at(NOW)))
        elif state.changes and case.work.state is JobState.PENDING:
            fewer = state._replace(changes=state.changes - 1)
            yield from _ruled(model, fewer, place, "cancel", commands.Cancel())
    if state.changes:
        for limits in ((state.limits[0] - 1, state.limits[1]), (state.limits[0] + 1, state.limits[1])):
            if limits[0]:
                yield "set limit", _swept(state._replace(limits=limits, changes=state.changes - 1))
    if model.flaw not in (Flaw.NO_SWEEP, Flaw.NO_NEXT) and (swept := _swept(state)) != state:
        yield "sweep", swept
    older = tuple(case._replace(attempt=case.attempt and _older(case.attempt)) for case in state.jobs)
    if older != state.jobs:
        yield "tick", state._replace(jobs=older)


Local = tuple[str, State, Hand]


def _worker(model: Limits, state: State, hand: Hand) -> Iterator[Local]:
    if hand != IDLE:
        yield "crash", state, IDLE
    if hand.token:
        case = state.jobs[hand.job]
        answer = _answer(case, commands.Complete(hand.token), hand.token)
        if answer is None:
            late = _freed(model, state, hand.job) if model.flaw is Flaw.LATE_END else state
            yield "forget", late, IDLE
        else:
            keeps = model.flaw is Flaw.END_KEEPS
            after = state._replace(jobs=with_at(state.jobs, hand.job, _moved(case, answer)))
            yield "complete", after if keeps else _freed(model, after, hand.job), IDLE
    elif model.flaw in (Flaw.NO_LOCK, Flaw.OLD_RULES) and hand == IDLE:
        seen = Hand(slots=state.slots) if model.flaw is Flaw.NO_LOCK else Hand(rules=state.limits)
        yield "look", state, seen
    else:
        yield from _claimed(model, state, hand)


def _claimed(model: Limits, state: State, hand: Hand) -> Iterator[Local]:
    """Claim one job within its limits, and park those that are not, as `LimitWrites.claim` does."""
    every = model.flaw is Flaw.PARKED_CLAIMED
    pending = (n for n, case in enumerate(state.jobs) if case.work.state is JobState.PENDING)
    due = tuple(job for job in pending if every or state.jobs[job].parked is None)
    if not due:
        return
    # With a flaw a slot that was taken meanwhile is given out again; in the store a unique key refuses that.
    slots = state.slots if hand.slots is None else hand.slots
    made = _assigned(model, hand.rules or state.limits, slots, due)
    jobs, token = state.jobs, 0
    for job, bucket in made.parked.items():
        jobs = with_at(jobs, job, jobs[job]._replace(parked=bucket))
    for job in made.chosen:
        answer = _answer(jobs[job], commands.Claim())
        assert answer is not None  # noqa: S101  # a due job may be claimed
        jobs = with_at(jobs, job, _moved(jobs[job], answer))
        token = jobs[job].work.attempts
    after = state._replace(jobs=jobs, slots=state.slots | frozenset(made.taken))
    after = after._replace(over=after.over or any(_is_over(model, after, job) for job in made.chosen))
    yield "claim", _let_go(after, made.passed), Hand(made.chosen[0], token) if made.chosen else IDLE


@cache
def _assigned(model: Limits, limits: tuple[int, int], slots: Slots, due: tuple[int, ...]) -> Assignment:
    room = _room(_rules(limits), slots)
    made = room.assign([model.candidate(job) for job in due], 1)
    if model.flaw is Flaw.PARKED_HOLDS:
        made.taken.extend((BY_QUEUE, room.free_slot(BY_QUEUE), job) for job in made.parked)
    return made


def _ruled(model: Limits, state: State, place: int, action: str, command: object) -> Iterator[tuple[str, State]]:
    """Take a job from its worker or from its queue, and unpark the next ones."""
    case = state.jobs[place]
    answer = _answer(case, command, case.attempt.token if case.attempt else 0)
    if answer is not None:
        after = state._replace(jobs=with_at(state.jobs, place, _moved(case, answer)))
        yield action, after if model.flaw is Flaw.REAPER_KEEPS else _freed(model, after, place)


def _freed(model: Limits, state: State, job: int) -> State:
    """Free the slots of a job, and unpark as many jobs as there is room for."""
    freed = {bucket for bucket, _, holder in state.slots if holder == job}
    after = state._replace(slots=frozenset(slot for slot in state.slots if slot[2] != job))
    return after if model.flaw is Flaw.NO_NEXT else _let_go(after, freed)


def _let_go(state: State, buckets: set[str]) -> State:
    if not any(case.parked in buckets for case in state.jobs):
        return state
    rules = _rules(state.limits)
    room, jobs = _room(rules, state.slots), state.jobs
    for bucket in sorted(buckets):
        rule = rule_of(bucket, rules)
        waiting = [job for job, case in enumerate(jobs) if case.parked == bucket]
        for job in waiting[: room.left(bucket, rule) if rule else EVERY]:
            jobs = with_at(jobs, job, jobs[job]._replace(parked=None))
    return state._replace(jobs=jobs)


def _swept(state: State) -> State:
    return _let_go(state, {case.parked for case in state.jobs if case.parked is not None})


def _answer(case: Case, command: object, token: int = 0) -> Move | None:
    """Return the move that `decide` allows; None if it refuses, or if another attempt runs."""
    if token and (case.attempt is None or case.attempt.token != token):
        return None
    answer = judged(case.work, case.attempt if token else None, BUDGET, command, NOW)
    return answer if isinstance(answer, Move) and answer.steps else None


def _moved(case: Case, move: Move) -> Case:
    """Return a job after a move; a job that is taken out is no longer parked."""
    work = moved(move, case.work)
    if work.state is not JobState.RUNNING:
        return Case(work, None, None)
    return Case(work, tried(move, None, token=work.attempts, expires=LEASE), case.parked)


def _older(attempt: Try) -> Try:
    return attempt._replace(expires=max(attempt.expires - 1, NOW))


def _rank(hand: Hand) -> tuple[object, ...]:
    return hand.job, hand.token, hand.rules or (), sorted(hand.slots or ())


# ---------------------------------------------------------------------------------------------------------------------
# What must hold


def _is_over(model: Limits, state: State, job: int) -> bool:
    """Return whether more jobs of a bucket of this job run than its limit allows."""
    rules = _rules(state.limits)
    running = [n for n, case in enumerate(state.jobs) if case.work.state is JobState.RUNNING]
    held = Counter(bucket for n in running for bucket in _buckets(model, n))
    return any(held[name] > (limit.running or 0) for name, limit in buckets_of(model.candidate(job), rules))


def _all_held(model: Limits, state: State) -> bool:
    held = {(bucket, job) for bucket, _, job in state.slots}
    running = (job for job, case in enumerate(state.jobs) if case.work.state is JobState.RUNNING)
    return all((bucket, job) in held for job in running for bucket in _buckets(model, job))


def _all_rest(state: State) -> bool:
    return not any(case.work.state in (JobState.PENDING, JobState.RUNNING) for case in state.jobs)
