"""A job that follows others, or a batch and its callback: what it waits for, who unparks it, and what a crash loses.

A worker reads a wait in one step and changes it in a later one, only if it is unchanged, as `flow.settle` does. Between
the two steps the jobs that are waited for end, are retried, released or cancelled, and other workers read the wait too.

Invariants: `core.decide` allows every move of a job; the job that follows is recorded with its wait in one write, and
parked. A `Flaw` is one wrong implementation; each breaks a named invariant or promise.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache, partial
from typing import NamedTuple

from holdfast.core import commands, governed
from holdfast.core.decide import Move
from holdfast.core.machines import JobState
from holdfast.model.checker import Model, Promise
from holdfast.model.rules import Budget, Work, at, judged, moved, submitted, tried, with_at

NOW = 0
BUDGET = Budget(1, 1)
ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.QUARANTINED)


class Policy(StrEnum):
    """What happens if a job that is waited for does not succeed."""

    WAIT = "wait"
    CANCEL = "cancel"
    RUN = "run"


class Flaw(StrEnum):
    """One wrong implementation."""

    APART = "the jobs of a batch are recorded in one write and its callback in another"
    AT_THE_END = "the end of a job submits the callback if it finds no other open job"
    END_LETS_GO = "only the end of a job unparks what follows; no worker compares states later"
    FIRST_ONLY = "a job is unparked when the first job that it follows has succeeded"
    FAILED_COUNTS = "a job that failed counts as one that succeeded"
    LOOK_UNMATCHED = "a worker changes a wait that another worker has changed since it was read"
    STALE_LOOK = "a worker that has read a cancelled job does not read it again before it cancels what follows"
    BROKEN_DOOMS = "a quarantined job cancels what follows, as a cancelled job does"
    IN_ORDER = "a cancelled job is noticed only after all jobs before it have succeeded"


class Parent(NamedTuple):
    """A job that is waited for: whether it was cancelled and is not released, and whether it has ended once."""

    work: Work
    cancelled: bool = False
    ended: bool = False


class Follower(NamedTuple):
    """The job that follows. `recorded` counts its submits; it is None if a crash has lost it."""

    recorded: int | None
    parked: bool
    state: JobState
    starts: int = 0
    early: bool = False  # it started although a job that it follows did not allow that
    doomed: bool = False  # it was cancelled although no job that it follows was cancelled then


class Look(NamedTuple):
    """What a worker has read of a wait: the mark, the mark to write, and whether to cancel what follows."""

    mark: int
    following: int | None
    doomed: bool = False


class State(NamedTuple):
    """The state of the model. The mark is the first job that holds the follower back; None if the wait has ended."""

    parents: tuple[Parent, ...]
    follower: Follower
    mark: int | None
    looks: tuple[Look | None, ...]
    rulings: int


class Flow(NamedTuple):
    """The size of the model and its flaw."""

    parents: int = 2
    policy: Policy = Policy.WAIT
    lookers: int = 2
    rulings: int = 2
    flaw: Flaw | None = None

    def model(self) -> Model[State]:
        late = self.flaw in (Flaw.APART, Flaw.AT_THE_END)
        parents = (Parent(submitted(BUDGET)),) * self.parents
        follower = Follower(0 if late else 1, not late, JobState.PENDING)
        return Model(
            initial=State(parents, follower, 0, (None,) * self.lookers, self.rulings),
            steps=partial(_steps, self),
            invariants={
                "there is one job that follows": lambda state: (state.follower.recorded or 0) <= 1,
                "a job that follows starts once": lambda state: state.follower.starts <= 1,
                "a job starts only when those that it follows allow it": lambda state: not state.follower.early,
                "a job is cancelled only for a job that was cancelled": lambda state: not state.follower.doomed,
            },
            promises={
                "what follows runs when the jobs before it allow it": Promise(partial(_may_run, self), _has_ended),
                "what follows a cancelled job is cancelled": Promise(partial(_is_doomed, self), _has_ended),
            },
            fair=frozenset({"succeed", "look", "settle", "settle refused", "run", "submit the callback"}),
            faults=frozenset({"crash"}),
        )


# ---------------------------------------------------------------------------------------------------------------------
# Actions


def _steps(model: Flow, state: State) -> Iterator[tuple[str, State]]:
    for place, parent in enumerate(state.parents):
        for action, after in _parents(state, place, parent):
            yield action, _after_the_end(model, after, place) if action in _ENDS else after
    for number, look in enumerate(state.looks):
        if look is not None:
            yield "crash", state._replace(looks=_in_order(with_at(state.looks, number, None)))
            action, after = _settled(model, state, look)
            yield action, after._replace(looks=_in_order(with_at(state.looks, number, None)))
        elif (found := _looked(model, state)) is not None:
            yield "look", state._replace(looks=_in_order(with_at(state.looks, number, found)))
    follower = state.follower
    if follower.recorded and not follower.parked and follower.state is JobState.PENDING:
        early = not all(_allowed(model, parent) for parent in state.parents)
        ran = follower._replace(state=JobState.SUCCEEDED, starts=follower.starts + 1, early=early)
        yield "run", state._replace(follower=ran)
    if model.flaw is Flaw.APART and follower.recorded == 0:
        yield "submit the callback", state._replace(follower=follower._replace(recorded=1, parked=True))
        yield "crash", state._replace(follower=follower._replace(recorded=None))


_ENDS: dict[str, Callable[[int], object]] = {
    "succeed": commands.Complete,
    "fail": lambda token: commands.Fail(token, "failed", "failed", retry_at=at(NOW)),
}
_RULINGS: dict[str, object] = {
    "cancel": commands.Cancel(),
    "quarantine": commands.Quarantine("broken"),
    "retry": commands.Retry(),
    "release": governed.Release("operator", "repaired", grant_id=1),
}


def _parents(state: State, place: int, parent: Parent) -> Iterator[tuple[str, State]]:
    """Let a job run to an end, or let an operator rule on it."""
    for action, command in _ENDS.items():
        work = _ran(parent.work, command)
        if work is not None:
            yield action, state._replace(parents=with_at(state.parents, place, Parent(work, ended=True)))
    for action, ruling in _RULINGS.items() if state.rulings else ():
        answer = judged(parent.work, None, BUDGET, ruling, NOW)
        if isinstance(answer, Move) and answer.steps:
            ended = parent.ended or action in ("cancel", "quarantine")
            ruled = Parent(moved(answer, parent.work), action == "cancel", ended)
            yield action, state._replace(parents=with_at(state.parents, place, ruled), rulings=state.rulings - 1)


@cache
def _ran(work: Work, command: Callable[[int], object]) -> Work | None:
    """Return a job after an attempt that ends by this command; None if no attempt can begin."""
    claim = judged(work, None, BUDGET, commands.Claim(), NOW)
    if not isinstance(claim, Move):
        return None
    running = moved(claim, work)
    attempt = tried(claim, None, token=running.attempts, expires=NOW + 1)
    end = judged(running, attempt, BUDGET, command(running.attempts), NOW)
    assert isinstance(end, Move)  # noqa: S101  # the holder of a live lease may end its attempt
    return moved(end, running)


def _after_the_end(model: Flow, state: State, place: int) -> State:
    """Return the state after the end of a job: only with a flaw does the end itself change the job that follows."""
    follower, ended = state.follower, all(parent.work.state in ENDED for parent in state.parents)
    if model.flaw is Flaw.AT_THE_END and ended:
        return state._replace(follower=follower._replace(recorded=(follower.recorded or 0) + 1))
    if model.flaw is Flaw.END_LETS_GO and state.mark == place and state.parents[place].work.state is JobState.SUCCEEDED:
        mark = place + 1 if place + 1 < model.parents else None
        return state._replace(mark=mark, follower=follower._replace(parked=mark is not None))
    return state


def _looked(model: Flow, state: State) -> Look | None:
    """Return what a worker reads of the wait, if it has something to change."""
    mark, flaw = state.mark, model.flaw
    if mark is None or not state.follower.recorded or flaw is Flaw.END_LETS_GO:
        return None
    if not state.follower.parked:  # an operator has cancelled or quarantined it
        return Look(mark, None)
    seen = state.parents[mark : mark + 1] if flaw is Flaw.IN_ORDER else state.parents[mark:]
    if model.policy is Policy.CANCEL and any(_dooms(flaw, parent) for parent in seen):
        return Look(mark, None, doomed=True)
    holding = [place for place in range(mark, model.parents) if not _allows(model, state.parents[place])]
    following = holding[0] if holding else None
    if following == mark:
        return None
    return Look(mark, None if flaw is Flaw.FIRST_ONLY else following)


def _settled(model: Flow, state: State, look: Look) -> tuple[str, State]:
    """Change a wait by what was read of it, if it is unchanged since."""
    follower, flaw = state.follower, model.flaw
    if state.mark != look.mark and flaw is not Flaw.LOOK_UNMATCHED:
        return "settle refused", state
    if look.doomed:
        if flaw is not Flaw.STALE_LOOK and not any(_dooms(flaw, parent) for parent in state.parents):
            return "settle refused", state
        unfit = not any(parent.cancelled for parent in state.parents)
        follower = follower._replace(state=JobState.QUARANTINED, parked=False, doomed=unfit)
    elif look.following is None:
        follower = follower._replace(state=JobState.PENDING, parked=False)
    return "settle", state._replace(mark=look.following, follower=follower)


def _dooms(flaw: Flaw | None, parent: Parent) -> bool:
    return parent.cancelled or (flaw is Flaw.BROKEN_DOOMS and parent.work.state is JobState.QUARANTINED)


def _in_order(looks: tuple[Look | None, ...]) -> tuple[Look | None, ...]:
    """Sort workers: states that differ only in their order are one state."""
    return tuple(sorted(looks, key=str))


# ---------------------------------------------------------------------------------------------------------------------
# What must hold


def _allows(model: Flow, parent: Parent) -> bool:
    """Return whether a job no longer holds back the job that follows it."""
    state = parent.work.state
    if state is JobState.SUCCEEDED or (model.flaw is Flaw.FAILED_COUNTS and state is JobState.FAILED):
        return True
    return model.policy is Policy.RUN and state in ENDED


def _allowed(model: Flow, parent: Parent) -> bool:
    """Return whether this job ever allowed its follower to run: a job that has ended may have been retried since."""
    return parent.ended if model.policy is Policy.RUN else parent.work.state is JobState.SUCCEEDED


def _may_run(model: Flow, state: State) -> bool:
    return all(_allows(model, parent) for parent in state.parents)


def _is_doomed(model: Flow, state: State) -> bool:
    """Return whether what follows must be cancelled; while an operator can still release the job it need not be."""
    return model.policy is Policy.CANCEL and not state.rulings and any(parent.cancelled for parent in state.parents)


def _has_ended(state: State) -> bool:
    return state.follower.state in ENDED
