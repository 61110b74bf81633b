"""Releases from quarantine under a grant: people request, approve and revoke grants, and runners use them.

As in `fleet.py`, an actor reads the rows, calls the rules, and writes in a later step, only if the rows are unchanged.
A released job can be quarantined again, and then needs another grant.

Invariants: every move is one that `core.decide` allows, and a use also one that `core.authority` permits; a release and
the use of its grant are one write, both or neither. A time is the time left of a grant. A `Flaw` is one wrong
implementation; each breaks a named invariant.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import cache, partial
from typing import NamedTuple

from holdfast.core.authority import Rejected, judge
from holdfast.core.commands import Quarantine
from holdfast.core.decide import Move, decide
from holdfast.core.governed import GrantEvent, Release
from holdfast.core.machines import GRANT, GrantState, JobState
from holdfast.model import rules
from holdfast.model.checker import Model
from holdfast.model.rules import Budget, Paper, Plan, Work, at, planned, with_at

NOW = 0
BUDGET = Budget(1)
PEOPLE = ("ann", "bob")
RUNNER = "model"


class Flaw(StrEnum):
    """One wrong implementation."""

    SELF_APPROVAL = "the requester of a grant may approve it"
    GRANT_UNMATCHED = "the use of a grant does not check that it is unchanged since it was read"
    JOB_UNMATCHED = "a release does not check that the job is unchanged since it was read"
    EXPIRED_ACCEPTED = "an expired grant is accepted"
    REVOKED_ACCEPTED = "a revoked grant is accepted"
    DRAFT_ACCEPTED = "a grant without an approval is accepted"
    USED_ACCEPTED = "a used grant is accepted"
    TWO_WRITES = "a job is released in one write and its grant is consumed in another"
    OTHER_JOB = "a grant for one job releases another"


_ACCEPTED = {
    Flaw.REVOKED_ACCEPTED: GrantState.REVOKED,
    Flaw.DRAFT_ACCEPTED: GrantState.DRAFT,
    Flaw.USED_ACCEPTED: GrantState.CONSUMED,
}


class Use(NamedTuple):
    """A use of a grant: the job, the grant's state at the write, and the time left when the use was decided."""

    job: int
    grant: int
    state: GrantState
    left: int


class Hand(NamedTuple):
    """The memory of an actor: the move of a grant that it will write, and the move of a job with it."""

    grant: int = 0
    event: Plan | None = None
    actor: str = ""
    job: int = 0
    release: Plan | None = None
    left: int = 0


IDLE = Hand()


class State(NamedTuple):
    """The state of the model. A grant is identified by its index."""

    jobs: tuple[Work, ...]
    grants: tuple[Paper, ...]
    runners: tuple[Hand, ...]
    clerks: tuple[Hand, ...]
    uses: tuple[Use, ...]


class Grants(NamedTuple):
    """The size of the model and its flaw."""

    jobs: int = 2
    grants: int = 2
    runners: int = 2
    clerks: int = 1  # they approve, revoke and expire grants
    lasts: int = 1
    flaw: Flaw | None = None

    def model(self) -> Model[State]:
        [(_, job)] = _quarantined(rules.submitted(BUDGET))
        return Model(
            initial=State((job,) * self.jobs, (), (IDLE,) * self.runners, (IDLE,) * self.clerks, ()),
            steps=partial(_steps, self),
            invariants={
                "a grant is used once": lambda state: len({use.grant for use in state.uses}) == len(state.uses),
                "a grant releases only its own job": lambda state: all(
                    state.grants[use.grant].job == use.job for use in state.uses
                ),
                "a grant is active when it is used": lambda state: all(
                    use.state is GrantState.ACTIVE for use in state.uses
                ),
                "a grant has not expired when its use is decided": lambda state: all(
                    use.left > 0 for use in state.uses
                ),
                "a grant is approved by another person than requested it": lambda state: all(
                    grant.approved_by != grant.requested_by for grant in state.grants
                ),
                "a grant is consumed if and only if it was used": _consumed_iff_used,
                "a job leaves quarantine only by a grant": _leaves_by_a_grant,
            },
        )


# ---------------------------------------------------------------------------------------------------------------------
# Actions


def _steps(model: Grants, state: State) -> Iterator[tuple[str, State]]:
    if len(state.grants) < model.grants:
        birth = GRANT.path("request", None)
        for person in PEOPLE:
            for place in range(model.jobs):
                grant = Paper(GrantState(birth.target), len(birth.edges), place, person, None, model.lasts)
                yield "request", state._replace(grants=(*state.grants, grant))
    for number, hand in enumerate(state.clerks):
        for action, after, kept in _handled(state, hand) if hand.event else _judged(model, state):
            yield action, after._replace(clerks=_in_order(with_at(after.clerks, number, kept)))
    for number, hand in enumerate(state.runners):
        for action, after, kept in _used(model, state, hand) if hand.event else _permitted(model, state):
            yield action, after._replace(runners=_in_order(with_at(after.runners, number, kept)))
    for place, job in enumerate(state.jobs):
        for action, after_job in _quarantined(job):
            yield action, state._replace(jobs=with_at(state.jobs, place, after_job))
    older = tuple(map(_older, state.grants))
    if older != state.grants:
        yield "tick", state._replace(grants=older)


Local = tuple[str, State, Hand]


def _judged(model: Grants, state: State) -> Iterator[Local]:
    """Let people decide about a grant."""
    for place, grant in enumerate(state.grants):
        for plan, actor in _decisions(model.flaw, grant):
            yield f"decide to {plan.verb}", state, Hand(place, plan, actor)


@cache
def _decisions(flaw: Flaw | None, grant: Paper) -> tuple[tuple[Plan, str], ...]:
    freely = flaw is Flaw.SELF_APPROVAL
    commands = [GrantEvent("approve", person, may_self_approve=freely) for person in PEOPLE]
    commands += [GrantEvent("revoke", PEOPLE[0]), GrantEvent("expire", "keeper")]
    answers = [(command, decide(rules.grant_of(grant), command, at(NOW))) for command in commands]
    return tuple((planned(command.event, move), command.actor) for command, move in answers if isinstance(move, Move))


def _handled(state: State, hand: Hand) -> Iterator[Local]:
    """Write the move of a grant, if the grant is unchanged since it was read."""
    assert hand.event is not None  # noqa: S101  # a clerk writes only after a decision
    move, verb, grant = hand.event.move, hand.event.verb, state.grants[hand.grant]
    if _is_unchanged(move, grant):
        after = _ended(rules.stamped(move, grant, hand.actor))
        yield verb, state._replace(grants=with_at(state.grants, hand.grant, after)), IDLE
    else:
        yield f"{verb} refused", state, IDLE


def _permitted(model: Grants, state: State) -> Iterator[Local]:
    """Let a runner find a grant for a job, and decide to use it."""
    for place, job in enumerate(state.jobs):
        for number, grant in enumerate(state.grants):
            for release, use in _permission(model.flaw, job, place, grant):
                yield "decide to release", state, Hand(number, use, RUNNER, place, release, grant.expires)


@cache
def _permission(flaw: Flaw | None, job: Work, place: int, grant: Paper) -> tuple[tuple[Plan, Plan], ...]:
    """Return the moves of a job and of a grant, if the job may be released and the grant permits it."""
    read = rules.grant_of(_misread(flaw, grant))
    release = rules.judged(job, None, BUDGET, Release(RUNNER, "repaired", grant_id=1), NOW)
    use = decide(read, GrantEvent("consume", RUNNER), at(NOW))
    wanted = rules.release_of(grant.job if flaw is Flaw.OTHER_JOB else place)
    if isinstance(judge(None, [read], wanted, at(NOW)), Rejected):
        return ()
    if not isinstance(release, Move) or not release.steps or not isinstance(use, Move):
        return ()
    return ((planned("release", release), planned("consume", use)),)


def _misread(flaw: Flaw | None, grant: Paper) -> Paper:
    """Return the grant that a runner reads: the real one, or a wrong one by a flaw."""
    if flaw in _ACCEPTED and grant.state is _ACCEPTED[flaw]:
        return grant._replace(state=GrantState.ACTIVE, expires=NOW + 1)
    return grant._replace(expires=NOW + 1) if flaw is Flaw.EXPIRED_ACCEPTED else grant


def _used(model: Grants, state: State, hand: Hand) -> Iterator[Local]:
    """Release a job and consume the grant in one write, if both are unchanged since they were read."""
    assert hand.event is not None  # noqa: S101  # a runner writes only after a decision
    yield "crash", state, IDLE
    grant, job = state.grants[hand.grant], state.jobs[hand.job]
    same_grant = _is_unchanged(hand.event.move, grant) or model.flaw is Flaw.GRANT_UNMATCHED
    after = _ended(rules.stamped(hand.event.move, grant, hand.actor))
    if hand.release is None:  # by a flaw the job is released already
        yield "consume", state._replace(grants=with_at(state.grants, hand.grant, after)) if same_grant else state, IDLE
        return
    same_job = rules.matches(hand.release.move, job, None, NOW) or model.flaw is Flaw.JOB_UNMATCHED
    if not (same_grant and same_job):
        yield "release refused", state, IDLE
        return
    released = state._replace(
        jobs=with_at(state.jobs, hand.job, rules.moved(hand.release.move, job)),
        uses=(*state.uses, Use(hand.job, hand.grant, grant.state, hand.left)),
    )
    if model.flaw is Flaw.TWO_WRITES:
        yield "release", released, hand._replace(release=None)
    else:
        yield "release", released._replace(grants=with_at(state.grants, hand.grant, after)), IDLE


def _quarantined(job: Work) -> Iterator[tuple[str, Work]]:
    """Quarantine a job again: its next release needs another grant."""
    answer = rules.judged(job, None, BUDGET, Quarantine("bad"), NOW)
    if isinstance(answer, Move) and answer.steps:
        yield "quarantine", rules.moved(answer, job)


def _is_unchanged(move: Move, grant: Paper) -> bool:
    """Return whether a grant is unchanged since a move was decided: the condition of the store's WHERE."""
    return all(step.version == grant.version for step in move.steps)


def _ended(grant: Paper) -> Paper:
    """Set the time left of a closed grant to 0: it does not matter, and one value keeps the states few."""
    return grant._replace(expires=NOW) if grant.state in GRANT.final else grant


@cache
def _older(grant: Paper) -> Paper:
    return grant._replace(expires=max(grant.expires - 1, NOW))


@cache
def _in_order(hands: tuple[Hand, ...]) -> tuple[Hand, ...]:
    """Sort actors of one kind: states that differ only in the order of actors are one state."""
    return tuple(sorted(hands, key=_rank))


def _rank(hand: Hand) -> tuple[object, ...]:
    plans = (plan.rank if plan else () for plan in (hand.event, hand.release))
    return hand.grant, hand.actor, hand.job, hand.left, *plans


# ---------------------------------------------------------------------------------------------------------------------
# What must hold


def _consumed_iff_used(state: State) -> bool:
    consumed = [place for place, grant in enumerate(state.grants) if grant.state is GrantState.CONSUMED]
    return sorted(use.grant for use in state.uses) == consumed


def _leaves_by_a_grant(state: State) -> bool:
    """Return whether each release has a use: a job only enters and leaves quarantine, so its version counts both."""
    return all(
        sum(use.job == place for use in state.uses) == (job.version - 1) // 2
        and (job.state is JobState.PENDING) == (job.version % 2 == 1)
        for place, job in enumerate(state.jobs)
    )
