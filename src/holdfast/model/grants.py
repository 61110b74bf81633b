"""The governed way out of quarantine: people who ask for grants, approve and revoke them, and runners who use them.

As in `fleet.py`, somebody reads, lets the rules judge, and writes in a later step, only if the rows still are what was
read. A job that was released can be quarantined again, and then needs another grant.

Invariants: every move is one that `core.decide` allows, and a use also one that `core.authority` permits; a release and
the use of its grant are one write, both or neither. Time is what is left of a grant. A `Flaw` is one way to build it
wrongly; each breaks a named invariant.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import cache, partial
from typing import NamedTuple

from holdfast.core.authority import Rejected, judge
from holdfast.core.commands import Quarantine, Release, Submit
from holdfast.core.decide import Move, decide
from holdfast.core.governed import GrantEvent
from holdfast.core.machines import GRANT, GrantState, JobState
from holdfast.model.checker import Model
from holdfast.model.rules import (
    Budget,
    Paper,
    Plan,
    Work,
    at,
    grant_of,
    judged,
    matches,
    moved,
    planned,
    release_of,
    stamped,
    with_at,
)

NOW = 0
BUDGET = Budget(1)
PEOPLE = ("ann", "bob")
RUNNER = "model"


class Flaw(StrEnum):
    """One way to build it wrongly."""

    SELF_APPROVAL = "who asks for a grant may approve it"
    GRANT_UNMATCHED = "the use of a grant does not ask whether it is still the one that was read"
    JOB_UNMATCHED = "a release does not ask whether the job is still the one that was read"
    EXPIRED_ACCEPTED = "a grant that has run out is accepted"
    REVOKED_ACCEPTED = "a grant that was revoked is accepted"
    DRAFT_ACCEPTED = "a grant that nobody has approved is accepted"
    USED_ACCEPTED = "a grant that was used is accepted"
    TWO_WRITES = "a job is released in one write and its grant used up in another"
    OTHER_JOB = "a grant for one job releases another"


_ACCEPTED = {
    Flaw.REVOKED_ACCEPTED: GrantState.REVOKED,
    Flaw.DRAFT_ACCEPTED: GrantState.DRAFT,
    Flaw.USED_ACCEPTED: GrantState.CONSUMED,
}


class Use(NamedTuple):
    """A grant that was used: for which job, where it stood at the write, and what was left of it when it was judged."""

    job: int
    grant: int
    state: GrantState
    left: int


class Hand(NamedTuple):
    """What somebody has in mind: what is to become of a grant, and with it of a job."""

    grant: int = 0
    event: Plan | None = None
    actor: str = ""
    job: int = 0
    release: Plan | None = None
    left: int = 0


IDLE = Hand()


class State(NamedTuple):
    """Everything at one moment. A grant is known by its place."""

    jobs: tuple[Work, ...]
    grants: tuple[Paper, ...]
    runners: tuple[Hand, ...]
    clerks: tuple[Hand, ...]
    uses: tuple[Use, ...]


class Grants(NamedTuple):
    """How large the model is, and how it is built."""

    jobs: int = 2
    grants: int = 2
    runners: int = 2
    clerks: int = 1  # whoever approves, revokes and puts away what has run out
    lasts: int = 1
    flaw: Flaw | None = None

    def model(self) -> Model[State]:
        """Return the model to explore."""
        born = judged(None, None, BUDGET, Submit(), NOW)
        assert isinstance(born, Move)  # noqa: S101  # nothing is there to refuse it
        [(_, job)] = _quarantined(moved(born, None))
        return Model(
            initial=State((job,) * self.jobs, (), (IDLE,) * self.runners, (IDLE,) * self.clerks, ()),
            steps=partial(_steps, self),
            invariants={
                "a grant is used once": lambda state: len({use.grant for use in state.uses}) == len(state.uses),
                "a grant lets its own job go": lambda state: all(
                    state.grants[use.grant].job == use.job for use in state.uses
                ),
                "a grant is active when it is used": lambda state: all(
                    use.state is GrantState.ACTIVE for use in state.uses
                ),
                "a grant has not run out when its use is judged": lambda state: all(use.left > 0 for use in state.uses),
                "a grant is approved by another than asked for it": lambda state: all(
                    grant.approved_by != grant.requested_by for grant in state.grants
                ),
                "what is used up is what was used": _used_up_is_used,
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
    answers = [(command, decide(grant_of(grant), command, at(NOW))) for command in commands]
    return tuple((planned(ask.event, move), ask.actor) for ask, move in answers if isinstance(move, Move))


def _handled(state: State, hand: Hand) -> Iterator[Local]:
    """Write what was decided about a grant, if it is still the one that was read."""
    assert hand.event is not None  # noqa: S101  # nothing else is handled
    move, verb, grant = hand.event.move, hand.event.verb, state.grants[hand.grant]
    if _is_read(move, grant):
        after = _ended(stamped(move, grant, hand.actor))
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
    """Return the moves of a job and of a grant, if the one may be released and the other permits it."""
    read = grant_of(_misread(flaw, grant))
    release = judged(job, None, BUDGET, Release(RUNNER, "mended", grant_id=1), NOW)
    use = decide(read, GrantEvent("consume", RUNNER), at(NOW))
    wanted = release_of(grant.job if flaw is Flaw.OTHER_JOB else place)
    if isinstance(judge(None, [read], wanted, at(NOW)), Rejected):
        return ()
    if not isinstance(release, Move) or not release.steps or not isinstance(use, Move):
        return ()
    return ((planned("release", release), planned("consume", use)),)


def _misread(flaw: Flaw | None, grant: Paper) -> Paper:
    """Return a grant as a runner takes it to be: as it is, but for a flaw."""
    if flaw in _ACCEPTED and grant.state is _ACCEPTED[flaw]:
        return grant._replace(state=GrantState.ACTIVE, expires=NOW + 1)
    return grant._replace(expires=NOW + 1) if flaw is Flaw.EXPIRED_ACCEPTED else grant


def _used(model: Grants, state: State, hand: Hand) -> Iterator[Local]:
    """Release a job and use the grant up, in one write, if both are still those that were read."""
    assert hand.event is not None  # noqa: S101  # nothing else is used
    yield "crash", state, IDLE
    grant, job = state.grants[hand.grant], state.jobs[hand.job]
    same_grant = _is_read(hand.event.move, grant) or model.flaw is Flaw.GRANT_UNMATCHED
    after = _ended(stamped(hand.event.move, grant, hand.actor))
    if hand.release is None:  # by a flaw the job is out already
        yield "use up", state._replace(grants=with_at(state.grants, hand.grant, after)) if same_grant else state, IDLE
        return
    same_job = matches(hand.release.move, job, None, NOW) or model.flaw is Flaw.JOB_UNMATCHED
    if not (same_grant and same_job):
        yield "release refused", state, IDLE
        return
    released = state._replace(
        jobs=with_at(state.jobs, hand.job, moved(hand.release.move, job)),
        uses=(*state.uses, Use(hand.job, hand.grant, grant.state, hand.left)),
    )
    if model.flaw is Flaw.TWO_WRITES:
        yield "release", released, hand._replace(release=None)
    else:
        yield "release", released._replace(grants=with_at(state.grants, hand.grant, after)), IDLE


def _quarantined(job: Work) -> Iterator[tuple[str, Work]]:
    """Take a job out of routine again: what needed a grant once needs another then."""
    answer = judged(job, None, BUDGET, Quarantine("bad"), NOW)
    if isinstance(answer, Move) and answer.steps:
        yield "quarantine", moved(answer, job)


def _is_read(move: Move, grant: Paper) -> bool:
    """Tell whether a grant is still the one that a move was decided on: what the store's WHERE asks."""
    return all(step.version == grant.version for step in move.steps)


def _ended(grant: Paper) -> Paper:
    """What is left of a grant that has ended is nothing to anybody."""
    return grant._replace(expires=NOW) if grant.state in GRANT.final else grant


@cache
def _older(grant: Paper) -> Paper:
    return grant._replace(expires=max(grant.expires - 1, NOW))


@cache
def _in_order(hands: tuple[Hand, ...]) -> tuple[Hand, ...]:
    """Sort those who do the same: states that differ only in which one is which are one."""
    return tuple(sorted(hands, key=_rank))


def _rank(hand: Hand) -> tuple[object, ...]:
    plans = (plan.rank if plan else () for plan in (hand.event, hand.release))
    return hand.grant, hand.actor, hand.job, hand.left, *plans


# ---------------------------------------------------------------------------------------------------------------------
# What must hold


def _used_up_is_used(state: State) -> bool:
    used_up = [place for place, grant in enumerate(state.grants) if grant.state is GrantState.CONSUMED]
    return sorted(use.grant for use in state.uses) == used_up


def _leaves_by_a_grant(state: State) -> bool:
    """A job moves to and fro from where it was born, a version a move: so its version tells how often it has left."""
    return all(
        sum(use.job == place for use in state.uses) == (job.version - 1) // 2
        and (job.state is JobState.PENDING) == (job.version % 2 == 1)
        for place, job in enumerate(state.jobs)
    )
